// Package scheduler shares one GPU among guests. A [Scheduler] is told what was seen of the GPU,
// charges the guests, asks a policy (package fairshare) who may use the GPU, and tells the guests'
// executors. It opens no socket and no file but /proc, for process attribution; it knows nothing of
// how guests are made, which is package daemon's.
//
// The flow of a round (LoGA §4.2): a watcher (package accounting) watches the GPU for a polling
// phase and calls [Scheduler.PollEnded]. The scheduler reads what the guests' executors say of
// their work (observe), charges each guest (charge), asks the policy (decide), and publishes the
// verdicts on the guests' control pages. Its plan says how long the watcher watches on for what was
// just suspended. [Scheduler.QuietEnded] reports the time between two polling phases. Under
// policies about kernels a round is not enough: a listener for each guest (Listen) or a timer calls
// [Scheduler.LaunchesChanged], and package launchqueue makes the policy's events of what changed.
//
// # Driving a scheduler
//
// A [Loop] drives a scheduler in real time: it opens the GPU, chooses the status source
// (source.go), runs an accounting.Sampler or accounting.Recorder, and runs timers. A simulation
// drives a Scheduler itself, on a simulated clock and from one goroutine:
//
//	s, err := scheduler.New(scheduler.Options{
//		Name: "gpu0", Clock: clk, Log: log, Policy: "dfq",
//		GPU: scheduler.GPU{Properties: props, Watch: watch}, // watch: accounting.Config with its defaults
//	})
//	g := scheduler.NewGuest(scheduler.GuestOptions{Name: "a", Terms: ipc.Terms{Weight: 1}, Executors: model})
//	s.Add(g)
//	s.Changed(g.ID())
//
// and then:
//
//   - an accounting.SimulatedSampler of the model, with the scheduler as its handler, calls PollEnded and
//     QuietEnded (sim_test.go is an example);
//   - when a launch slot has changed it calls LaunchesChanged, and at the instant that NextTimer returns
//     RunTimers;
//   - Remove and Changed when a guest goes.
//
// The model of a guest is an [Executors]: Activity and Groups say what its contexts do, and Publish
// is told the verdicts. A model with launches under a policy about kernels has an ipc.ControlPage
// (ipc.NewControlPage) for GuestOptions.Page, and is the executor of that page: it claims
// launch slots, starts, leaves and finishes them. With a page and no Executors, contexts are those
// of the page too.
//
// # Locks
//
// In this order, each taken only with those before it held or none: Loop.watching,
// Scheduler.roster, Scheduler.mu, Guest.mu. roster guards the list of guests and keeps their pages
// open; mu guards all that is decided; Guest.mu guards a guest's orders and bill. A Controller's
// and an Executors' methods are called with all of them held and must not call back. The watcher's
// goroutine alone, without mu, uses Guest.work and Scheduler.processes.
package scheduler
