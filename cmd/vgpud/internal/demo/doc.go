// Package demo is `vgpud demo`: the main job on one machine. It starts a GPU in
// software, the daemon, and guests of different weights as processes of their
// own, each attached over vfio-user and working through kernels of the corpus
// with checked results; shares the GPU first by none and then by weighted
// disengaged fair queueing; and shows who got what. Then it has an urgent guest
// beside a batch guest with long kernels, and shows what it does for the one, and
// to the other, that kernels leave the GPU for more urgent ones.
//
// A guest's process works by package work; [Run] is all the rest.
package demo
