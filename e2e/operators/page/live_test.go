package page

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/mediator/access"
)

// TestDemoIsShown: the page whose address `vgpud demo` prints shows the demo's guests live.
func TestDemoIsShown(t *testing.T) {
	b := openBrowser(t)
	b.expectAbsent()
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	demo := exec.Command(filepath.Join(bin, "vgpud"), "demo", "--duration", "10m")
	messages, err := demo.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	addresses := make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(messages)
		for lines.Scan() {
			if m := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(lines.Text()); m != "" {
				addresses <- m
			}
		}
		_ = demo.Wait() // it is ended by a signal
	}()
	t.Cleanup(func() {
		if err := demo.Process.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
		<-ended
	})
	var address string
	select {
	case address = <-addresses:
	case <-ended:
		t.Fatal("the demo has ended, and printed no address")
	}
	b.size(1180, 900, 1, false)
	b.open(address)
	b.until("the three guests at work", `[...document.querySelectorAll("#guest-table tbody tr")].filter((r) => parseFloat(r.querySelector(".share b").textContent) > 1).length === 3`)
	names := eval[[]string](b, `[...document.querySelectorAll("#guest-table tbody .name button")].map((e) => e.textContent)`)
	if len(names) != 3 || names[0] != "long" || names[1] != "medium" || names[2] != "short" {
		t.Errorf("guests %q", names)
	}
	kernels := eval[string](b, `document.querySelector("#guest-table tbody .kernels .sub").textContent`)
	b.until("more kernels", `document.querySelector("#guest-table tbody .kernels .sub").textContent !== `+quoted(kernels))
	b.until("lines in the chart", `document.querySelectorAll("#legend li").length === 3 && document.querySelector("#chart canvas") !== null`)
	// Without a policy the order of the shares is reversed; dfq then holds them by weight.
	b.until("policy dfq", `document.querySelector("#gpus dl").innerText.includes("none") || document.querySelector("#gpus dl").innerText.includes("dfq")`)
	b.picture("web-demo")
}

// quoted returns a literal of JavaScript for text without quotes.
func quoted(s string) string { return `"` + s + `"` }

// TestDaemonGoes: the page says so when the daemon does not answer, goes on with what it had, and
// comes back by itself.
func TestDaemonGoes(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 30, access.Viewer, nil)
	b.size(1180, 900, 1, false)
	b.open(s.url)
	s.down.Store(true)
	b.until("the bad news", `document.getElementById("connection").textContent.includes("No answer")`)
	if n := eval[int](b, `document.querySelectorAll("#guest-table tbody tr").length`); n != 7 {
		t.Errorf("%d guests are still shown, want 7", n)
	}
	if role := eval[string](b, `document.getElementById("connection").getAttribute("role")`); role != "status" {
		t.Errorf("the news have role %q", role)
	}
	s.down.Store(false)
	b.until("the good news", `document.getElementById("connection").textContent === "Live"`)
	b.expect("the server responded with a status of 503")
}

// TestChart: the chart has lines, its legend the newest values, and its table the same as text.
func TestChart(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 700, access.Viewer, nil)
	b.size(1180, 900, 1, false)
	b.open(s.url)
	drawn := `(() => { const c = document.querySelector("#chart canvas"); const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; const seen = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) seen.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); return seen.size; })()`
	if n := eval[int](b, drawn); n < 4 {
		t.Errorf("the chart has %d colours, want at least one a guest", n)
	}
	if got := eval[string](b, `document.getElementById("legend").innerText`); !regexp.MustCompile(`training\s+\d+\.\d of 50\.0 %`).MatchString(got) {
		t.Errorf("the legend: %q", got)
	}
	b.click("#chart-table summary")
	b.until("the table", `document.querySelectorAll("#chart-table tbody tr").length === 10`)
	if got := eval[string](b, `document.querySelector("#chart-table table").innerText`); !regexp.MustCompile(`\d+:\d+:\d+\s+\d+\.\d % of 25\.0 %`).MatchString(got) {
		t.Errorf("the table: %q", got)
	}
	b.click(`input[value=day] + span`)
	b.until("the day", `document.querySelectorAll("#chart-table tbody tr").length === 1`)
	b.run(selects("#chart-gpu", "gpu1"))
	b.until("the other GPU", `document.getElementById("legend").innerText.includes("batch-climate")`)
}

// TestPhone: on a narrow window a guest is a card whose parts have room.
func TestPhone(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 30, access.Operator, nil)
	b.size(390, 844, 1, false)
	b.open(s.url)
	for part, least := range map[string]int{"td.share .meter": 300, "th.name button": 160, "td.state": 160, "td.terms": 160, "td.kernels": 160} {
		if width := eval[int](b, `document.querySelector("#guest-table tbody `+part+`").clientWidth`); width < least {
			t.Errorf("%s is %d pixels wide, want at least %d of 390", part, width, least)
		}
	}
}

// TestManyGuests: of 64 guests all are in the table, and those that used most are in the chart.
func TestManyGuests(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, many(64), 120, access.Viewer, nil)
	b.size(1180, 900, 1, false)
	b.open(s.url)
	if n := eval[int](b, `document.querySelectorAll("#guest-table tbody tr").length`); n != 64 {
		t.Errorf("%d guests are shown", n)
	}
	if n := eval[int](b, `document.querySelectorAll("#legend li").length`); n != 8 {
		t.Errorf("%d guests are drawn", n)
	}
	b.fill("#filter", "guest-07")
	b.until("one guest", `document.querySelectorAll("#guest-table tbody tr").length === 1`)
	b.fill("#filter", "nobody")
	b.until("no guest", `!document.getElementById("no-guests").hidden`)
}
