package agent

import (
	"vgpud/guestagent/allot"
	"vgpud/guestagent/preempt/tune/cache"
)

// recall returns what is known about kernels, as many as fit a message.
func (a *Agent) recall(keys []cache.Key) (reply allot.Reply) {
	for i, k := range keys {
		e, ok := a.learned.Get(k)
		if !ok {
			continue
		}
		reply.Kernels = append(reply.Kernels, e)
		if n := allot.Fit(reply.Kernels); n < len(reply.Kernels) && n > 0 {
			reply.Kernels, reply.Next = reply.Kernels[:n], i
			break
		}
	}
	return reply
}

// learn stores what a program learned. Programs of one VM trust each other as far as the socket's
// group does; wrong information costs another program only time.
func (a *Agent) learn(entries []cache.Entry) {
	for _, e := range entries {
		a.learned.Put(e)
	}
}

// kernels returns what is known about all kernels, starting at index from.
func (a *Agent) kernels(from int) (reply allot.Reply) {
	all := a.learned.All()
	if from < 0 || from >= len(all) {
		return reply
	}
	n := allot.Fit(all[from:])
	reply.Kernels = all[from : from+n]
	if n > 0 && from+n < len(all) {
		reply.Next = from + n
	}
	return reply
}

// save writes what was learned to disk, if there is anything new.
func (a *Agent) save() {
	if a.o.Kernels == nil {
		return
	}
	if err := a.o.Kernels.Save(); err != nil {
		a.o.Log.Error("save the kernel cache", "err", err)
	}
}
