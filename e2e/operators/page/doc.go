// Package page tests the daemon's web page in Debian's Chromium, without a window: by clicks, by
// keys, by the accessibility tree, and by screenshots, which -screenshots writes to a directory.
package page
