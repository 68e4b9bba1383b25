// Package daemon is the host service, `vgpud serve`: it reads the configuration, creates guests'
// virtual GPUs, finds guests that an earlier daemon created, places guests on GPUs, follows libvirt
// domains, saves what the next daemon needs, and implements the API and the metrics. Package scheduler
// decides which guest may use a GPU, and the guests' own processes (mediator/vm and mediator/executor)
// carry that out; the daemon starts them but does not link them.
//
// The data path does not pass through the daemon. A guest's processes outlive it: they go on with
// the verdicts they have, a suspension ends by itself once the daemon has been silent for two
// seconds, and a new daemon finds the guests by their control sockets and goes on with their bills.
//
// The flow of a guest's life: CreateVM reserves its resources (reserve, create.go), takes a
// prestarted process or starts one (prestart.go), saves which process it is, assigns the guest to
// the process, and contacts the process over its control socket (adopt, adopt.go). A new daemon
// registers what it finds saved as silent guests (silent.go), which it suspends until each is
// contacted and adopted. When the process ends, the daemon removes what it left (guestend.go); a guest
// that is deleted is told to end, and killed if it does not (delete.go).
//
// # Locks
//
// In this order, each taken only with those before it held or none: Service.reloads,
// Service.admission, guest.saving, Service.mu, then one of silentGuest.mu, guest.mu, device.mu,
// prestartPool.mu or the locks of package scheduler. Service.mu guards which guests there are; a
// guest's control page stays open while it is held. Nothing below Service.mu calls back into the
// service.
package daemon
