// Package placement sends requests to OpenStack's Placement, with a token of Keystone's, and checks
// what it answers. It decides nothing: see [vgpud/mediator/nova] for what is asked for and why.
//
// An answer is bounded in time and size, and an answer that Placement could not have given is an
// error that wraps [ErrNonsense]. [ErrConflict], [ErrNotFound] and the other errors say what a caller
// may do next; any other error means that Placement or Keystone could not be asked.
package placement
