// Package nova tests vgpud with a real OpenStack: Nova and Placement as they are, in the test bed
// of scripts/nova-testbed.sh. The tests run with the flag -nova alone, as `make test-nova` does,
// because the test bed takes Debian's packages and root.
//
// Placement's answers are recorded in mediator/nova/testdata, for tests without a test bed. Each run
// asks the same again and compares; -update writes the recordings anew.
package nova
