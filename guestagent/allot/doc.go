// Package allot divides a virtual GPU among the programs of one guest: slots of contexts and
// channels, memory of BAR2, interrupt vectors. [Table] records which program has what; it is pure.
// The messages are those between the agent, which keeps the table, and the driver in a tenant's
// program.
//
// An allotment is an agreement, not isolation: a program with the descriptor of a PCI function can
// access all of it. Programs of different guests are isolated because they have different
// functions; those of one guest trust each other as far as the group that may open the agent's
// socket does.
package allot
