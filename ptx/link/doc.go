// Package link joins several PTX modules into one, as a linker joins objects: definitions are
// found for .extern names, .weak and .common definitions give way, names that are local to their
// object are renamed where they collide, and functions that no kernel reaches are left out. Text
// goes in and comes out; nothing is executed.
//
// [Link] works in four steps:
//
//  1. symbols.go binds the names in each object and collects what each object defines.
//  2. choose.go picks one definition for each global name.
//  3. reach.go follows references from kernels and visible variables, and finds unresolved ones.
//  4. write.go renames, orders and copies what was reached into the new module.
//
// The result has the highest .version and .target of all objects. It contains no debug sections,
// since they would have to be joined, too; .loc and .file remain, with their files renumbered.
package link
