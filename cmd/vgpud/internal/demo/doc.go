// Package demo is `vgpud demo`: vgpud's main task, shown on one machine. It starts a GPU in
// software, the daemon, and guests of different weights as processes, each attached over vfio-user
// and running kernels of the corpus with checked results. It shares the GPU first without a policy
// and then by weighted disengaged fair queueing, and shows each guest's part. Then it runs an
// urgent guest beside a batch guest with long kernels, and shows what evicting kernels for more
// urgent ones does for the one and to the other.
//
// Guests work by package workload; everything else is in [Run].
package demo
