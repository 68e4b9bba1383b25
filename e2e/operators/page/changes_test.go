package page

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"vgpud/e2e/host"
	"vgpud/e2e/operators"
	"vgpud/mediator/api"
)

// startDaemon starts vgpud with the page on an address of its own, and guest a.
func startDaemon(t *testing.T) *host.Host {
	t.Helper()
	operators.Require(t)
	h := host.Start(t, "dfq")
	if err := h.Daemon.End(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Config.Web = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	h.NewVM(api.VMSpec{Name: "a", Weight: 1})
	h.NewVM(api.VMSpec{Name: "b", Weight: 1, Guarantee: 0.7})
	return h
}

// expectAbsent has the test not fail for answers that the host lacks: it records no usage.
func (b *browser) expectAbsent() {
	b.expect("404 (Not Found) http")
}

// forward forwards an address to a unix socket, as ssh does. Its users have this process's role.
func forward(t *testing.T, socket string) (address string) {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: "unused"}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// fill writes a field's text anew.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.click(selector)
	b.run(chromedp.Func(evaluates("document.activeElement.select()")), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
}

// TestOperatorChanges: an operator changes a guest's terms and a GPU's policy of a running vgpud by
// clicks, after a confirmation and not before.
func TestOperatorChanges(t *testing.T) {
	b := openBrowser(t)
	b.expectAbsent()
	h := startDaemon(t)
	b.size(1180, 900, 1, false)
	b.open(forward(t, h.Config.Socket))
	open := func() {
		t.Helper()
		b.until("the guest", `document.querySelector("#guest-table .actions button") !== null`)
		b.openDialog("#guest-table tbody tr:nth-of-type(1) .actions button")
	}
	confirmation := `document.getElementById("change-confirm").innerText`

	open()
	b.fill("#field-weight", "3.5")
	b.fill("#field-cap", "40")
	b.click("#change-next")
	b.until("the confirmation", `!document.getElementById("change-confirm").hidden`)
	text := eval[string](b, confirmation)
	if !strings.Contains(text, "Weight: 1 → 3.5") || !strings.Contains(text, "Cap, %: 0 % → 40 %") && !strings.Contains(text, "Cap: 0 % → 40 %") || strings.Contains(text, "Guarantee") {
		t.Errorf("to be confirmed is %q", text)
	}
	if v := h.VM("a"); v.Weight != 1 || v.Cap != 0 {
		t.Fatalf("changed before the confirmation: %+v", v)
	}
	b.click("#change-cancel") // back
	b.until("the fields", `document.getElementById("change-confirm").hidden`)
	b.click("#change-cancel")
	b.until("the end of the dialog", `!document.getElementById("change").open`)
	if v := h.VM("a"); v.Weight != 1 || v.Cap != 0 {
		t.Fatalf("changed although it was cancelled: %+v", v)
	}

	open()
	b.fill("#field-weight", "3.5")
	b.fill("#field-cap", "40")
	b.click("#change-next")
	b.click("#change-next")
	b.until("the end of the dialog", `!document.getElementById("change").open`)
	if v := h.VM("a"); v.Weight != 3.5 || v.Cap != 0.4 {
		t.Errorf("weight %v and cap %v, want 3.5 and 0.4", v.Weight, v.Cap)
	}

	open()
	b.fill("#field-memory_limit_bytes", "96.5")
	b.click("#change-next")
	if text := eval[string](b, confirmation); !strings.Contains(text, "Memory limit: 0 MiB → 96.5 MiB") || strings.Contains(text, "Weight") {
		t.Errorf("to be confirmed is %q", text)
	}
	b.click("#change-next")
	b.until("the end of the dialog", `!document.getElementById("change").open`)
	if v, want := h.VM("a"), uint64(96<<20+1<<19); v.MemoryLimitBytes != want {
		t.Errorf("a memory limit of %d, want %d", v.MemoryLimitBytes, want)
	}
	open()
	b.fill("#field-latency_nanos", "50.5")
	b.click("#change-next")
	if text := eval[string](b, confirmation); !strings.Contains(text, "Latency: 0 µs → 50.5 µs") || strings.Contains(text, "Weight") {
		t.Errorf("to be confirmed is %q", text)
	}
	b.click("#change-next")
	b.until("the end of the dialog", `!document.getElementById("change").open`)
	if v, want := h.VM("a"), 50500*time.Nanosecond; v.Latency != want {
		t.Errorf("a latency of %v, want %v", v.Latency, want)
	}
	b.until("the new latency in the table", `document.querySelector("#guest-table td.terms").innerText.includes("latency 50.5 µs")`)
	b.until("the new limit in the table", `document.querySelector("#guest-table td.terms").innerText.includes("96.5 MiB")`)

	b.until("the new weight in the table", `document.querySelector("#guest-table td.terms").innerText.includes("weight 3.5")`)

	b.until("the change among the events", `[...document.querySelectorAll("#events li")].some((e) => e.querySelector(".name").textContent === "a" && e.querySelector(".by").textContent.includes("uid"))`)

	// An impossible value gets its error beside the field, and one that the daemon refuses gets the
	// daemon's words there.
	open()
	for text, want := range map[string]string{"many": "want a number", "-1": "want a number", "": "want a number"} {
		b.fill("#field-weight", text)
		b.click("#change-next")
		if got := eval[string](b, `document.getElementById("change-error").textContent`); !strings.Contains(got, want) {
			t.Errorf("weight %q: %q", text, got)
		}
	}
	b.fill("#field-weight", "3.5")
	b.click("#change-next")
	if got := eval[string](b, `document.getElementById("change-error").textContent`); !strings.Contains(got, "Nothing differs") {
		t.Errorf("nothing changed: %q", got)
	}
	b.fill("#field-guarantee", "60")
	b.click("#change-next")
	b.click("#change-next")
	b.until("the daemon's refusal", `document.getElementById("change-error").textContent.includes("guarantee")`)
	if v := h.VM("a"); v.Guarantee != 0 {
		t.Errorf("guarantee %v beside one of 0.7", v.Guarantee)
	}
	b.click("#change-cancel")

	b.click("#gpus button")
	b.run(chromedp.SetValue(chromedp.CSS("#field-policy"), "hpf"))
	b.click("#change-next")
	b.click("#change-next")
	b.until("the new policy", `document.querySelector("#gpus dl").innerText.includes("hpf")`)
	// The refusals were answers with an error's status, which the browser notes.
	b.expect("the server responded with a status of 507")
}

// TestViewerCannotChange: a viewer has no buttons, and what the page could send is refused.
func TestViewerCannotChange(t *testing.T) {
	b := openBrowser(t)
	b.expectAbsent()
	h := startDaemon(t)
	b.size(1180, 900, 1, false)
	b.open("http://" + h.Config.Web + "/")
	b.until("two guests", `document.querySelectorAll("#guest-table tbody tr").length === 2`)
	if n := eval[int](b, `[...document.querySelectorAll(".actions button, #gpus button")].filter((e) => e.checkVisibility()).length`); n != 0 {
		t.Errorf("a viewer sees %d buttons for changes", n)
	}
	if text := eval[string](b, `document.getElementById("about").innerText`); !strings.Contains(text, "not change") {
		t.Errorf("the page says %q", text)
	}
	for _, request := range []string{
		`fetch("/v1/vms/a", {method: "PATCH", body: '{"weight":9}'})`,
		`fetch("/v1/vms/a?force=true", {method: "DELETE"})`,
		`fetch("/v1/gpus/gpu0", {method: "PATCH", body: '{"policy":"none"}'})`,
		`fetch("/v1/vms", {method: "POST", body: '{"name":"c"}'})`,
	} {
		if status := eval[int](b, request+`.then((r) => r.status)`); status != http.StatusForbidden {
			t.Errorf("%s: status %d", request, status)
		}
	}
	if v := h.VM("a"); v.Weight != 1 {
		t.Errorf("weight %v", v.Weight)
	}
	b.expect("the server responded with a status of 403")
}

// TestForeignSite: a page of another origin can neither read what the daemon says nor change
// anything, with an operator's rights in the browser, nor show the page in a frame.
func TestForeignSite(t *testing.T) {
	b := openBrowser(t)
	b.expectAbsent()
	h := startDaemon(t)
	operator := forward(t, h.Config.Socket)
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if _, err := w.Write([]byte(`<!doctype html><title>foreign</title><iframe src="` + operator + `/"></iframe>`)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(foreign.Close)
	// Another name of this machine is another site.
	b.navigate(strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1))
	for _, request := range []string{
		`fetch("` + operator + `/page/state")`,
		`fetch("` + operator + `/v1/vms/a", {method: "PATCH", body: '{"weight":9}'})`,
		`fetch("` + operator + `/v1/vms", {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: '{"name":"c"}'}).then((r) => { if (r.status === 0) throw 0 })`,
	} {
		if got := eval[string](b, request+`.then(() => "read", () => "refused")`); got != "refused" {
			t.Errorf("%s: %s", request, got)
		}
	}
	if v := h.VM("a"); v.Weight != 1 {
		t.Errorf("a foreign site has set weight %v", v.Weight)
	}
	if vms, err := h.Client.VMs(t.Context()); err != nil || len(vms) != 2 {
		t.Errorf("there are %d guests (%v), want 2", len(vms), err)
	}
	b.expect("")
}
