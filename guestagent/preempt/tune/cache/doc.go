// Package cache keeps what was learned about kernels, by the content of their PTX and the GPU they
// ran on: in which forms a kernel can be launched, why not in others, and which form to launch
// ([tune.Record]).
//
// A [Cache] is a bounded map in memory: the entry that was not used for the longest is replaced.
// [Encode] and [Decode] are its file format: a line with the format's name, version and a checksum
// of the rest, then one JSON object per line, the latest used first. A [File] is a Cache with a
// file, which is replaced atomically. A file that is corrupt or has another version is renamed and
// logged, and the cache starts empty, which costs only time.
package cache
