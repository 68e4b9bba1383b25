// Package web is the page on which operators see the host in a browser: GPUs and guests now, their
// shares against what they are entitled to over time, why a guest is held back, and, for operators,
// changes of terms. It is not the API: what it asks of the daemon beyond the API is private to the
// page of the same build.
//
// A [Recorder] looks at the host once a second and keeps bounded histories, a fine one of ten
// minutes and a coarse one of a day. [Handler] serves the page's files, which are embedded, and what
// the recorder has. [Guard] refuses requests that a foreign site makes a browser send, and belongs
// in front of the page and the API alike.
//
// Everything that a guest can choose, its domain's name above all, reaches the page as JSON and its
// document as text. The page's content security policy allows neither inline scripts nor other
// hosts, and trusted types forbid the document to be written as markup at all.
//
// The recorder's lock is held for no call of others.
package web
