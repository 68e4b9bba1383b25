package console

// Limits of what travels in one message.
const (
	MaxChunk = 2 << 10 // bytes of a program's input or output
	MaxFrame = 8 << 10 // bytes of a message as it travels, with its frame
)

// Kind says what a message is about.
type Kind string

// Messages of the guest.
const (
	Hello   Kind = "hello"   // a boot begins: Boot, Text says what the guest is
	Started Kind = "started" // Program runs, as process PID
	Output  Kind = "output"  // Program wrote Data to Stream
	Taken   Kind = "taken"   // Program, or nobody any more, took the last Input: the next may come
	Exited  Kind = "exited"  // Program has ended, with Status, by Signal, or could not start for the reason in Text
	Refused Kind = "refused" // a request can't be carried out, for the reason in Text
)

// Messages of the host.
const (
	Run   Kind = "run"   // run Args as Program, with Env added to the environment
	Input Kind = "input" // Data is for Program's standard input; without Data the input ends
	Kill  Kind = "kill"  // send Signal to Program
	Power Kind = "power" // end the guest as Text says: PowerOff, Reboot or Panic
)

// What a [Power] message asks for.
const (
	PowerOff = "poweroff"
	Reboot   = "reboot"
	Panic    = "panic" // the guest's kernel crashes
)

// Streams of a program.
const (
	Stdout = 1
	Stderr = 2
)

// Message is one of either side. What a field means is said with the kinds.
type Message struct {
	Boot    uint32   `json:"b"`
	Number  uint32   `json:"n"`
	Kind    Kind     `json:"k"`
	Program uint32   `json:"p,omitempty"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Data    []byte   `json:"d,omitempty"`
	Stream  int      `json:"s,omitempty"`
	PID     int      `json:"pid,omitempty"`
	Status  int      `json:"status,omitempty"`
	Signal  int      `json:"sig,omitempty"`
	Text    string   `json:"text,omitempty"`
}
