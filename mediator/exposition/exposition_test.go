package exposition

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"pgregory.net/rapid"
)

// scripted is a source whose samples a test gives.
type scripted struct {
	families []*Family
	collect  func(Sink)
}

func (s scripted) Families() []*Family { return s.families }
func (s scripted) Collect(to Sink)     { s.collect(to) }

// text returns what Text writes of a source.
func text(t testing.TB, s Source) string {
	var b bytes.Buffer
	w := NewText(&b)
	s.Collect(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// fatal is what the tests of this package need of testing.TB and *rapid.T.
type fatal interface{ Fatal(...any) }

// clientText returns what client_golang writes of a source, having checked it.
func clientText(t fatal, s Source) string {
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(Collector(s)); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestTextIsClientGolangs: for any values and labels, Text writes what client_golang does.
func TestTextIsClientGolangs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, 999999, 1e6, 1e15, 1e21, 0.1, math.Inf(1), math.Inf(-1), math.NaN()}),
			rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) }))
		label := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", `a"b`, `c\d`, "e\nf", `\`, "é", "}"}))
		help := rapid.SampledFrom([]string{"Plain.", `A back\slash.`, "Two\nlines.", `A "quote".`})
		plain := NewFamily(Gauge, "a_plain", help.Draw(t, "help"))
		count := NewFamily(Counter, "b_total", help.Draw(t, "help"), "vm", "gpu", "domain")
		times := NewFamily(Histogram, "c_seconds", help.Draw(t, "help"), "vm", "gpu", "domain")
		bare := NewFamily(Histogram, "d_seconds", help.Draw(t, "help"))
		never := NewFamily(Gauge, "e_never", help.Draw(t, "help"), "vm")
		vm, gpu, domain := label.Draw(t, "vm"), label.Draw(t, "gpu"), label.Draw(t, "domain")
		v, n := value.Draw(t, "value"), rapid.Uint64().Draw(t, "count")
		d := Distribution{Bounds: []float64{1e-5, 0.5, 1, 2.5e6}, UpTo: []uint64{0, n / 3, n / 2, n / 2}, Count: n, Sum: value.Draw(t, "sum")}
		if rapid.Bool().Draw(t, "ends with +Inf") {
			d.Bounds, d.UpTo = append(d.Bounds, math.Inf(1)), append(d.UpTo, n)
		}
		s := scripted{[]*Family{plain, count, times, bare, never}, func(to Sink) {
			labels := With(vm, gpu, domain)
			to.Sample(plain, With(), v)
			to.Sample(count, labels, v)
			to.Distribution(times, labels, d)
			to.Distribution(bare, With(), d)
		}}
		var b bytes.Buffer
		w := NewText(&b)
		s.Collect(w)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(clientText(t, s), b.String()); diff != "" {
			t.Fatalf("text (-client_golang +Text):\n%s", diff)
		}
	})
}

// TestTextOfBadNames: a label that is no UTF-8 does not spoil the other series.
func TestTextOfBadNames(t *testing.T) {
	f := NewFamily(Gauge, "a", "Help.", "vm")
	got := text(t, scripted{[]*Family{f}, func(to Sink) { to.Sample(f, With("a\xffb"), 1) }})
	if want := "# HELP a Help.\n# TYPE a gauge\na{vm=\"a\uFFFDb\"} 1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// many is a source of a series for each of n guests.
func many(n int) Source {
	f := NewFamily(Counter, "guests_total", "Help.", "vm")
	return scripted{[]*Family{f}, func(to Sink) {
		for i := range n {
			to.Sample(f, With(strings.Repeat("x", 1+i%40)+string(rune('a'+i%26))+string(rune(0x4e00+i))), float64(i))
		}
	}}
}

// errWriter is a writer whose reader left.
type errWriter struct{ calls int }

var errGone = errors.New("gone")

func (w *errWriter) Write([]byte) (int, error) { w.calls++; return 0, errGone }

// TestTextStops: the error of the first write is what Flush returns, and nothing is written after it.
func TestTextStops(t *testing.T) {
	var w errWriter
	text := NewText(&w)
	many(10000).Collect(text)
	if err := text.Flush(); !errors.Is(err, errGone) {
		t.Errorf("Flush: %v", err)
	}
	if w.calls != 1 {
		t.Errorf("%d writes, want 1", w.calls)
	}
}

// TestHandler: whatever format and compression a request asks for, the answer has the source's series
// and the program's own.
func TestHandler(t *testing.T) {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector())
	h := Handler(many(1000), own, address)
	for name, c := range map[string]struct {
		accept, encoding, query string
		wantType                string
		want, wantNot           []string
	}{
		"nothing asked for": {wantType: "text/plain; version=0.0.4", want: []string{"# TYPE go_goroutines gauge\n", "# TYPE guests_total counter\n", "\nguests_total{vm=\"xa\u4e00\"} 0\n"}},
		"as Prometheus asks": {accept: "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", encoding: "gzip",
			wantType: "text/plain; version=0.0.4", want: []string{"# TYPE go_goroutines gauge\n", "\nguests_total{vm=\"xa\u4e00\"} 0\n"}},
		"protobuf":           {accept: "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", wantType: "application/vnd.google.protobuf", want: []string{"guests_total", "go_goroutines"}},
		"protobuf, in short": {accept: "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", encoding: "gzip", wantType: "application/vnd.google.protobuf", want: []string{"guests_total"}},
		"by name":            {query: "?name[]=guests_total", wantType: "text/plain", want: []string{"# TYPE guests_total counter\n"}, wantNot: []string{"go_goroutines"}},
	} {
		r := httptest.NewRequest("GET", "/metrics"+c.query, nil)
		r.Header.Set("Accept", c.accept)
		r.Header.Set("Accept-Encoding", c.encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding"); got != c.encoding {
			t.Errorf("%s: Content-Encoding is %q, want %q", name, got, c.encoding)
		} else if got == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), c.wantType) {
			t.Errorf("%s: status %d, %s, want %s", name, w.Code, w.Header().Get("Content-Type"), c.wantType)
		}
		for _, want := range c.want {
			if !bytes.Contains(got, []byte(want)) {
				t.Errorf("%s: no %q in\n%.500s", name, want, got)
			}
		}
		for _, not := range c.wantNot {
			if bytes.Contains(got, []byte(not)) {
				t.Errorf("%s: %q in it", name, not)
			}
		}
		if vary := w.Header().Values("Vary"); !slices.Contains(vary, "Accept-Encoding") {
			t.Errorf("%s: Vary is %q", name, vary)
		}
	}
}

// address returns where a request comes from.
func address(r *http.Request) string { return r.RemoteAddr }

// TestHandlerRefusesMany: beyond eight requests at a time, and three of one sender, one is told to come
// again.
func TestHandlerRefusesMany(t *testing.T) {
	f := NewFamily(Gauge, "a", "Help.")
	inside, leave := make(chan bool), make(chan bool)
	h := Handler(scripted{[]*Family{f}, func(to Sink) {
		inside <- true
		<-leave
		to.Sample(f, With(), 1)
	}}, prometheus.NewRegistry(), address)
	ask := func(sender string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr = sender
		h.ServeHTTP(w, r)
		return w.Code
	}
	refused := func(sender string) bool {
		code := make(chan int, 1)
		go func() { code <- ask(sender) }()
		select {
		case c := <-code:
			return c == 503
		case <-inside:
			return false
		}
	}
	done := make(chan int)
	senders := []string{"a", "a", "a", "b", "b", "b", "c", "d"}
	for i, sender := range senders {
		if i == maxRequestsEach && !refused("a") {
			t.Fatal("one more of a sender is answered")
		}
		go func() { done <- ask(sender) }()
		<-inside
	}
	if !refused("e") {
		t.Fatal("one more is answered")
	}
	close(leave)
	for range senders {
		if code := <-done; code != 200 {
			t.Errorf("status %d, want 200", code)
		}
	}
	for range maxRequestsEach { // all places are free again
		go func() { done <- ask("a") }()
		<-inside
		if code := <-done; code != 200 {
			t.Errorf("later: status %d, want 200", code)
		}
	}
}
