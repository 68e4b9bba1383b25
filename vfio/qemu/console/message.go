package console

// Limits of one message.
const (
	MaxChunk = 2 << 10 // bytes of a program's input or output
	MaxFrame = 8 << 10 // bytes of a message with its frame
)

// Kind is the type of a message.
type Kind string

// Messages from the guest.
const (
	Hello   Kind = "hello"   // a boot begins: Boot identifies it, Text describes the guest
	Started Kind = "started" // Program runs, as process PID
	Output  Kind = "output"  // Program wrote Data to Stream
	Taken   Kind = "taken"   // Program received the last Input, or has ended: the next may be sent
	Exited  Kind = "exited"  // Program ended with Status or by Signal, or did not start because of Text
	Refused Kind = "refused" // a request failed because of Text
)

// Messages from the host.
const (
	Run   Kind = "run"   // run Args as Program, with Env added to the environment
	Input Kind = "input" // Data is for Program's standard input; without Data the input ends
	Kill  Kind = "kill"  // send Signal to Program
	Power Kind = "power" // end the guest: Text is PowerOff, Reboot or Panic
)

// Texts of a [Power] message.
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

// Message is a message of either end. The kinds define the fields.
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
