package page

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/access"
)

func number(n int) string { return strconv.Itoa(n) }

// focus describes the element that has the focus.
func (b *browser) focus() string {
	b.t.Helper()
	return eval[string](b, `(() => { const e = document.activeElement; return e.id || e.ariaLabel || e.textContent.trim() || e.tagName; })()`)
}

// TestKeyboard: everything is reached and used by keys.
func TestKeyboard(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 60, access.Operator, nil)
	b.size(1180, 900, 1, false)
	b.open(s.url)
	press := func(keys string) { b.run(chromedp.KeyEvent(keys)) }
	press(kb.Tab)
	if got := b.focus(); got != "Skip to the guests" {
		t.Fatalf("the first Tab goes to %q", got)
	}
	press(kb.Enter)
	b.until("the guests", `document.activeElement.id === "guests"`)
	press(kb.Tab)
	var stops []string
	for range 3 {
		stops = append(stops, b.focus())
		press(kb.Tab)
	}
	if diff := cmp.Diff([]string{"filter", "Guest", "State"}, stops); diff != "" {
		t.Errorf("stops of Tab (-want +got):\n%s", diff)
	}
	press(kb.Enter) // Share
	b.until("the order by share", `document.querySelector("th.share").ariaSort === "ascending"`)
	first := `document.querySelector("#guest-table tbody tr button").textContent`
	if got := eval[string](b, first); got != "batch-climate" {
		t.Errorf("%q uses the most, it says", got)
	}
	press(kb.Enter)
	b.until("the other order", `document.querySelector("th.share").ariaSort === "descending"`)
	// The guest's name draws it alone, with the focus kept while rows change their places.
	for b.focus() != eval[string](b, first) {
		press(kb.Tab)
	}
	name := b.focus()
	press(" ")
	b.until("the guest alone", `document.activeElement.getAttribute("aria-pressed") === "true"`)
	s.pass()
	b.until("another second", `document.querySelectorAll("#legend li").length === 1`)
	if got := b.focus(); got != name {
		t.Errorf("the focus went from %q to %q", name, got)
	}
	// The dialog keeps the focus, and Escape closes it.
	press(kb.Tab)
	if got := b.focus(); got != "Change the terms of "+name {
		t.Fatalf("after the name comes %q", got)
	}
	press(kb.Enter)
	b.until("the dialog", `document.getElementById("change").open`)
	if got := b.focus(); got != "field-weight" {
		t.Errorf("the dialog begins at %q", got)
	}
	press(kb.Escape)
	b.until("the end of the dialog", `!document.getElementById("change").open`)
	if got := b.focus(); got != "Change the terms of "+name {
		t.Errorf("after the dialog the focus is on %q", got)
	}
}

// TestAccessibility has axe-core look for failures of WCAG 2.2 AA and of its best practices, in each
// state of the page, and looks through the tree that Chromium gives screen readers.
func TestAccessibility(t *testing.T) {
	b := openBrowser(t)
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, day(), 200, access.Operator, nil)
	check := func(state string) {
		t.Helper()
		b.run(chromedp.Func(evaluates(string(axe) + ";0")))
		type violation struct {
			ID    string
			Help  string
			Nodes []struct{ HTML, FailureSummary string }
		}
		violations := eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => ({ID: v.id, Help: v.help, Nodes: v.nodes.map((n) => ({HTML: n.html, FailureSummary: n.failureSummary}))})))`)
		passes := eval[int](b, `axe.run(document, {resultTypes: ["passes"]}).then((r) => r.passes.length)`)
		t.Logf("%s: axe-core: %d rules pass, %d fail", state, passes, len(violations))
		if passes < 20 {
			t.Errorf("%s: axe-core found %d rules to hold only", state, passes)
		}
		for _, v := range violations {
			for _, n := range v.Nodes {
				t.Errorf("%s: %s (%s): %s\n%s", state, v.ID, v.Help, n.HTML, n.FailureSummary)
			}
		}
	}
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1180, 390} {
			b.size(width, 900, 1, dark)
			b.open(s.url)
			b.click("#chart-table summary")
			b.until("the table", `document.querySelectorAll("#chart-table tbody tr").length > 1`)
			state := fmt.Sprintf("%d pixels wide, dark %v", width, dark)
			check(state)
			b.openDialog(".actions button")
			check(state + ", with the dialog")
			b.click("#change-cancel")
		}
	}

	b.size(1180, 900, 1, false)
	b.open(s.url)
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	roles := make(map[string][]string)
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		name := ""
		if n.Name != nil {
			name = plain(n.Name.Value)
		}
		role := plain(n.Role.Value)
		roles[role] = append(roles[role], name)
	}
	for role, want := range map[string][]string{
		"main": {""}, "banner": {""}, "contentinfo": {""},
		"columnheader": {"Guest", "State", "Share", "Terms", "Kernels", "Evicted", "Errors", "Actions"},
	} {
		if diff := cmp.Diff(want, roles[role]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
	if n := len(roles["rowheader"]); n != 7 {
		t.Errorf("%d guests have a row's head, want 7", n)
	}
	if n := len(roles["row"]); n != 8 {
		t.Errorf("%d rows, want the head and 7 guests", n)
	}
	for _, want := range []string{"GPUs", "Shares over time", "Guests", "Events"} {
		if !contains(roles["heading"], want) || !contains(roles["region"], want) {
			t.Errorf("%q is not a region with a heading: %q, %q", want, roles["region"], roles["heading"])
		}
	}
	if !contains(roles["image"], "used 14 %, entitled to 15 %") {
		t.Errorf("the bars are called %q", roles["image"])
	}
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
