// Package cache keeps what was learned about kernels, by the content of their PTX and the GPU they ran on: which forms
// a kernel can be launched in, why not in others, and which to launch it in ([tune.Record]).
//
// A [Cache] is that in memory, bounded: what was not used for the longest goes first. [Encode] and [Decode] are its
// file: a line that names the format, its version and a checksum of the rest, then a JSON object a line, the latest
// used first. A [File] is a Cache with a place on disk; it is replaced at once or not at all. A file that is broken, or
// of another version, is put aside and said so, and the cache begins empty: all that is lost is time.
package cache
