package main

import (
	"slices"
	"strings"
	"testing"
)

const web1 = "5d4b2f6e-0b0a-4c56-9d3f-6b1f0a0e7c11"

func TestDomainUUID(t *testing.T) {
	const more = "more than once"
	for name, test := range map[string]struct {
		args      string // separated by spaces
		want, err string
	}{
		"none":                    {args: ""},
		"capabilities":            {args: "-S -no-user-config -nodefaults -nographic -machine none,accel=kvm:tcg -qmp unix:/q,server=on,wait=off -pidfile /p -daemonize"},
		"help":                    {args: "-device vfio-user-pci,help"},
		"libvirt":                 {args: "-name guest=web1,debug-threads=on -S -object {} -machine pc-q35-11.1 -m size=1k -uuid " + web1 + " -display none -no-user-config", want: web1},
		"two dashes":              {args: "--uuid " + web1, want: web1},
		"first":                   {args: "-uuid " + web1 + " -S", want: web1},
		"a tenant's command line": {args: "-kernel k -append -uuid -uuid " + web1 + " -S", want: web1},
		"another's UUID as value": {args: "-append --uuid -smbios " + web1 + " -uuid " + web1, want: web1},
		"twice":                   {args: "-uuid " + web1 + " -uuid " + web1, err: more},
		"twice, two dashes":       {args: "-uuid " + web1 + " --uuid x", err: more},
		"no value":                {args: "-S -uuid", err: "no value"},
		"a path":                  {args: "-uuid ../../../tmp/x", err: `is "../../../tmp/x"`},
		"a path of that length":   {args: "-uuid ../../../../../../../../../../../tmp", err: "want a UUID"},
		"upper case":              {args: "-uuid " + strings.ToUpper(web1), err: "want a UUID"},
		"an option as value":      {args: "-uuid -S", err: "want a UUID"},
		"a newer QEMU's flag":     {args: "-newflag -uuid " + web1, err: "does not know"},
		"and a tenant's":          {args: "-newflag -append -uuid " + web1 + " -uuid " + web1, err: more},
		"an image":                {args: "disk.img -uuid " + web1, want: web1},
		"standard input":          {args: "- -uuid " + web1, want: web1},
	} {
		got, err := domainUUID(strings.Fields(test.args))
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %q, %v, want %q, error %q", name, got, err, test.want, test.err)
		}
	}
}

// FuzzDomainUUID checks that whatever the arguments are, the answer is a UUID that stands behind
// -uuid, or none.
func FuzzDomainUUID(f *testing.F) {
	f.Add("-S\n-uuid\n" + web1)
	f.Add("-append\n-uuid\n-uuid\n" + web1)
	f.Add("-uuid\n../x")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		uuid, err := domainUUID(args)
		if err != nil {
			if uuid != "" {
				t.Errorf("%q and an error: %v", uuid, err)
			}
			return
		}
		if uuid == "" {
			if unread(args) {
				t.Error("-uuid was overlooked")
			}
			return
		}
		if !canonical.MatchString(uuid) || strings.ContainsAny(uuid, "/.") {
			t.Errorf("%q is no UUID", uuid)
		}
		if i := slices.Index(args, uuid); i < 1 || !slices.Contains([]string{"-uuid", "--uuid"}, args[slices.Index(args, uuid)-1]) && !repeated(args, uuid) {
			t.Errorf("%q does not stand behind -uuid", uuid)
		}
	})
}

// repeated reports whether a UUID is behind -uuid at its second place or later.
func repeated(args []string, uuid string) bool {
	for i := range args {
		if i > 0 && args[i] == uuid && strings.TrimLeft(args[i-1], "-") == "uuid" {
			return true
		}
	}
	return false
}

func TestParseArguments(t *testing.T) {
	device := `{"driver":"vfio-user-pci","id":"vgpu0"}`
	for name, test := range map[string]struct {
		text string
		want []string
		err  string
	}{
		"a device":         {text: "-device\n" + device + "\n", want: []string{"-device", device}},
		"spaces":           {text: "-x\n  a b\t\n", err: "line 2 is not text"},
		"letters":          {text: "-name\nhé\n", want: []string{"-name", "hé"}},
		"empty":            {err: "incomplete"},
		"half":             {text: "-device\n" + device, err: "incomplete"},
		"an empty line":    {text: "-device\n\n", err: "line 2 is empty"},
		"only a line":      {text: "\n", err: "line 1 is empty"},
		"long":             {text: "-x\n" + strings.Repeat("x", maxArgument+1) + "\n", err: "4097 bytes"},
		"no text":          {text: "-x\n\x00\n", err: "line 2 is not text"},
		"no UTF-8":         {text: "-x\n\xff\n", err: "line 2 is not text"},
		"carriage returns": {text: "-x\r\n", err: "line 1 is not text"},
		"a UUID":           {text: "-uuid\n" + web1 + "\n", err: "name a domain"},
		"a bad UUID":       {text: "-uuid\nx\n", err: "name a domain"},
	} {
		got, err := parseArguments([]byte(test.text))
		if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %q, %v, want %q, error %q", name, got, err, test.want, test.err)
		}
	}
}

// FuzzParseArguments checks that arguments can be written again as they were read.
func FuzzParseArguments(f *testing.F) {
	f.Add([]byte("-device\n{}\n"))
	f.Add([]byte("-device"))
	f.Fuzz(func(t *testing.T, text []byte) {
		args, err := parseArguments(text)
		if err == nil && strings.Join(args, "\n")+"\n" != string(text) {
			t.Errorf("%q was read as %q", text, args)
		}
	})
}
