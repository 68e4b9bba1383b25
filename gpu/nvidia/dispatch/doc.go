// Package dispatch makes dispatchers: resident kernels that launch an event kernel's events by
// themselves (EDGE §III, with the table and its loop in software).
//
// A dispatcher is one kernel of a guest's made callable ([callable.Make]) with a kernel of ours around it.
// Where that uses variables of its module, it uses those of the guest's, by their addresses ([variables.Bind]).
// A dispatcher has the grid and the blocks of the guest's kernel, all of which must fit the GPU at a time, and
// stays there. Its first thread polls the doorbell word in the event area (BAR4 of docs/device.md, host
// memory); the others wait at a barrier, or, in other blocks, for a word in GPU memory. When the
// doorbell has been rung the first thread takes the entry at the head of the queue, as
// [eventqueue.Poller] would, all threads call the kernel, and the first one stores the entry's flag.
//
// A dispatcher leaves the GPU when it is told to by a word in its control block, or parks by itself:
// after [IdleNanos] without an event, or as soon as it has no event after others have had the GPU,
// which shows as a gap between two polls. Before it parks it asks for kicks and looks at the doorbell
// once more.
//
// The package is pure: it makes PTX, and says where the control block has what. Package nvidia launches
// dispatchers. A hostile guest may have written the words that a dispatcher reads, and its kernels can overwrite
// the control block, too: the dispatcher itself reaches no more than its context does, and the host checks what
// it finds in the block.
package dispatch
