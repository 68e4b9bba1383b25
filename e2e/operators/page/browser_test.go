package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"vgpud/e2e/host"
	"vgpud/e2e/operators"
)

var screenshots = flag.String("screenshots", "", "write the pictures of the documentation to this directory")

// waitLimit bounds waits for what takes a second on an idle machine.
const waitLimit = 10 * time.Minute

// browser is a tab of a Chromium.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the browser complained about
	expected []string // parts of complaints that a test provokes
}

// openBrowser starts a Chromium with one tab. It ends with the test, which fails if the browser
// complained about anything: an exception, a refusal by the content security policy, a missing file.
func openBrowser(t testing.TB) *browser {
	t.Helper()
	operators.Require(t)
	allocator, end := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(operators.Program(t, "chromium")),
		chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.WSURLReadTimeout(waitLimit))
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complain(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *log.EventEntryAdded:
			b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(p, part) }) {
				t.Errorf("Chromium: %s", p)
			}
		}
	})
	return b
}

func (b *browser) complain(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// expect has the test not fail for complaints that contain part.
func (b *browser) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

// run carries out actions.
func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// size sets the window's size, its scale and whether it prefers dark colours.
func (b *browser) size(width, height int64, scale float64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.t.Fatal(err)
	}
}

// navigate goes to a page. At the end of the test the tab leaves it before anything ends that the
// test has started until now: an open page complains of a daemon that is gone.
func (b *browser) navigate(url string) {
	b.t.Helper()
	b.t.Cleanup(func() { b.run(chromedp.Navigate("about:blank")) })
	b.run(chromedp.Navigate(url))
}

// open goes to a page and waits until it shows what the daemon answered.
func (b *browser) open(url string) {
	b.t.Helper()
	b.navigate(url)
	b.until("the page's first answer", `document.getElementById("connection").dataset.state === "good"`)
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	host.Until(b.t, waitLimit, what, func() error {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if err == nil && !ok {
			err = errors.New(expression + " is false")
		}
		return err
	})
}

// click clicks in the middle of the element that a selector finds.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.run(chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// openDialog clicks a button until the dialog that it opens is there. Elements that are drawn anew can
// move the button between the moment at which it is found and the click, as under a person's hand.
func (b *browser) openDialog(button string) {
	b.t.Helper()
	const open = `document.getElementById("change").open`
	host.Until(b.t, waitLimit, "the dialog", func() error {
		if eval[bool](b, open) {
			return nil
		}
		b.click(button)
		return errors.New(open + " is false")
	})
}

// picture takes a screenshot of what the window shows, and writes it where -screenshots says. It
// fails the test if the picture has hardly any colours.
func (b *browser) picture(name string) {
	b.t.Helper()
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	few := fewerColours(img)
	if len(few.Palette) < 16 {
		b.t.Errorf("the picture %s has %d colours", name, len(few.Palette))
	}
	if *screenshots == "" {
		return
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, few); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), out.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fewerColours returns a picture with its 256 most frequent colours, which takes a third of the
// bytes.
func fewerColours(img image.Image) *image.Paletted {
	seen := make(map[color.RGBA]int)
	r := img.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(seen), func(a, b color.RGBA) int { return cmp.Compare(seen[b], seen[a]) })
	var palette color.Palette
	for _, c := range all[:min(256, len(all))] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(r, palette)
	draw.Draw(out, r, img, r.Min, draw.Src)
	return out
}

// evaluates returns an action that runs a script as the browser's own, whatever the page's policy.
func evaluates(script string) func(context.Context, *chromedp.Target) error {
	return func(ctx context.Context, target *chromedp.Target) error {
		got, err := cdp.Call(ctx, target, runtime.Evaluate, runtime.EvaluateParams{Expression: script})
		if err == nil && got.ExceptionDetails != nil {
			err = fmt.Errorf("exception: %+v", got.ExceptionDetails)
		}
		return err
	}
}

// selects returns an action that chooses an option as a reader does.
func selects(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(evaluates(fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event("change", {bubbles: true})); }`, selector, value)))
}

// plain returns a JSON string's text.
func plain(v []byte) string {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return string(v)
	}
	return s
}
