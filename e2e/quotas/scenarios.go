package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// policies are those that are tried: of the policies about launches FLEP's two.
var policies = []string{"none", "dfq", "ffs", "hpf"}

// counts are the numbers of guests.
var counts = []int{2, 4, 8, 16, 32}

// The kinds of quotas.
const (
	capsOfAll  = "caps of all"
	capsOfSome = "caps of some"
	guarantees = "guarantees"
	budgets    = "budgets"
)

var quotas = []string{capsOfAll, capsOfSome, guarantees, budgets}

// The loads. Each guest has kernels of one length, 50 µs to 5 ms.
const (
	steady   = "steady"      // kernels always wait
	pauses   = "pauses"      // one kernel at a time, and a pause after each
	onAndOff = "on and off"  // kernels wait for a while, then there are none for a while
	comeGo   = "come and go" // guests are attached for a while, and then are not
	mixed    = "mixed"       // each guest has one of the others
)

var loads = []string{steady, pauses, onAndOff, comeGo, mixed}

// A run is done several times, each with other draws. It counts for so long after it has warmed up.
// Where launches wait for verdicts that takes twenty times as long, so runs are fewer and shorter.
const (
	draws          = 4
	length         = 12 * time.Second
	drawsByKernel  = 1
	lengthByKernel = 6 * time.Second
)

// trials returns all runs.
func trials(policies []string, counts []int) (all []*trial) {
	for _, q := range quotas {
		for _, policy := range policies {
			for _, n := range counts {
				for _, load := range loads {
					repeat, length := draws, length
					if fairshare.ByKernel(policy) {
						repeat, length = drawsByKernel, lengthByKernel
					}
					for draw := range uint64(repeat) {
						t := &trial{policy: policy, quota: q, load: load, guests: n, draw: draw, length: length}
						t.compose()
						all = append(all, t)
					}
				}
			}
		}
	}
	return all
}

// name returns what a run is, but for its quotas.
func (t *trial) name() string {
	return fmt.Sprintf("%s, %d guests, %s, draw %d", t.policy, t.guests, t.load, t.draw)
}

// compose draws the guests. They are the same under each policy.
func (t *trial) compose() {
	r := rand.New(rand.NewPCG(t.draw, uint64(t.guests)))
	between := func(a, b float64) float64 { return a + (b-a)*r.Float64() }
	seconds := func(a, b float64) time.Duration { return time.Duration(between(a, b) * float64(time.Second)) }
	for i := range t.guests {
		p := &program{name: fmt.Sprint("guest ", i), terms: ipc.Terms{Weight: []float64{1, 2, 4}[r.IntN(3)]}}
		p.length = time.Duration(float64(50*time.Microsecond) * math.Pow(100, r.Float64()))
		load := t.load
		if load == mixed {
			load = loads[r.IntN(len(loads)-1)]
		}
		switch load {
		case pauses:
			p.pause = time.Duration(between(0.1, 2) * float64(p.length))
		case onAndOff:
			p.on, p.off = seconds(0.3, 2), seconds(0.1, 1)
		case comeGo:
			p.here, p.away = seconds(1.5, 4), seconds(0.2, 1)
		}
		t.programs = append(t.programs, p)
	}
	switch t.quota {
	case capsOfAll:
		// All caps together leave a tenth of the GPU.
		divide(0.9, t.programs, r, func(p *program, part float64) { p.terms.Cap = part })
	case capsOfSome:
		for _, p := range t.programs[:(t.guests+1)/2] {
			p.terms.Cap = between(0.02, 0.6)
		}
	case guarantees:
		// At most half of the guests, whose weights are small.
		n := 1 + r.IntN(max(t.guests/2, 1))
		divide(between(0.3, 0.9), t.programs[:n], r, func(p *program, part float64) {
			p.terms.Guarantee, p.terms.Weight = part*p.alone(), 0.5
		})
	case budgets:
		for _, p := range t.programs[:(t.guests+1)/2] {
			p.budget = seconds(0.2/float64(t.guests), 3/float64(t.guests))
		}
	}
}

// divide gives each program a random part of a whole.
func divide(whole float64, programs []*program, r *rand.Rand, give func(*program, float64)) {
	parts, sum := make([]float64, len(programs)), 0.0
	for i := range parts {
		parts[i] = 0.2 + r.Float64()
		sum += parts[i]
	}
	for i, p := range programs {
		give(p, whole*parts[i]/sum)
	}
}
