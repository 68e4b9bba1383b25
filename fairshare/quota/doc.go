// Package quota decides whether a guest has had too much of a GPU's time, or too little. It is pure:
// callers measure, tell it the time, and carry out what follows.
//
// There are three bounds, each with its own type:
//
//	cap        at most a part of the GPU's time      Meter, by a bucket of time that fills at the cap's rate
//	guarantee  at least a part, while there is work  Meter, by a debt that grows at the guarantee's rate
//	budget     GPU time in a calendar period         Account, by what was used in the period
//
// From these a guest has one [Standing]:
//
//	         its bucket is overdrawn               it is owed more than is tolerated
//	Capped ◄───────────────────────── Free ─────────────────────────► Behind
//	       ─────────────────────────►      ◄─────────────────────────
//	         the bucket is paid back               the debt is paid
//
// A Capped guest is suspended. While any guest is Behind, all others are suspended. A standing
// lasts at least [halfDuty]: shorter duty cycles cost more in context switches than they gain.
// Capped comes first: a guest can be owed nothing that its cap forbids.
//
// The bucket holds the time of two rounds, and of a quarter of a second if others kept the GPU from
// the guest's work for that long. That lapses while the guest has no work. Hence no guest exceeds
// its cap over a long time, and a short excess is at most what the guest uses between two decisions:
// a round, and what runs on when it is suspended.
//
// A guest that leaves and comes back begins with what it had overdrawn, less what its cap would have
// given it meanwhile: see [Meter.Inherit].
//
// The debt grows with the time that the GPU gave to any guest while the guest had work, and shrinks by
// what the guest used or left unused. Time that it could not use lapses: for a guest that needs less
// than half of its guarantee, the debt grows at twice what it needs. A guest's [Need] is what it would
// use by itself, not what it gets beside others.
//
// A budget is judged at every charge. Its period is a day, a week from Monday on, or a month, by
// the wall clock in a given time zone. An [Account] keeps what was used in the latest periods by
// their beginnings. So a clock that jumps and comes back finds its period as it was, and no jump
// grants one period's budget twice. An account is charged by a guest's running totals, so that a
// total that is told again after a restart is charged once.
//
// A guest's charge is an estimate where the GPU is not watched all the time, and the error grows with
// the charge. The time from its kernels' starts to their ends has no such error, but includes others'
// turns on the GPU. A budget counts the larger of the two, as far as the error can explain the
// difference: see [Measured.Most]. It is spent when kernels on the GPU will use the rest of it.
package quota
