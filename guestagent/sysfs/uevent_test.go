package sysfs

import "testing"

func FuzzUevent(f *testing.F) {
	for _, c := range []struct {
		text string
		want Event
		ok   bool
	}{
		{"add@/devices/pci0000:00/0000:00:10.0\x00ACTION=add\x00DEVPATH=/devices/pci0000:00/0000:00:10.0\x00SUBSYSTEM=pci\x00PCI_SLOT_NAME=0000:00:10.0\x00SEQNUM=1\x00", Event{"add", "0000:00:10.0"}, true},
		{"remove@/devices/pci0000:00/0000:00:10.0\x00ACTION=remove\x00DEVPATH=/devices/pci0000:00/0000:00:10.0\x00SUBSYSTEM=pci\x00", Event{"remove", "0000:00:10.0"}, true},
		{"add@/devices/virtual/net/tap0\x00ACTION=add\x00DEVPATH=/devices/virtual/net/tap0\x00SUBSYSTEM=net\x00", Event{"add", "tap0"}, false},
		{"libudev\x00\xfe\xed\xca\xfe", Event{}, false},
		{"", Event{}, false},
	} {
		f.Add([]byte(c.text))
		if got, ok := parseUevent([]byte(c.text)); got != c.want || ok != c.ok {
			f.Errorf("%q: %+v, %v; want %+v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseUevent(b); ok && (e.Action == "" || e.Address == "") {
			t.Errorf("an event of nothing: %+v", e)
		}
	})
}

func FuzzResources(f *testing.F) {
	f.Add("0x00000000fea00000 0x00000000fea0ffff 0x0000000000040200\n")
	f.Add("0x0 0xffffffffffffffff 0x0\n1 0 2\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		bars, err := parseResources(text)
		for _, b := range bars {
			if err == nil && b.Bytes != 0 && b.Start+b.Bytes-1 < b.Start {
				t.Errorf("a BAR past the end of memory: %+v", b)
			}
		}
	})
}
