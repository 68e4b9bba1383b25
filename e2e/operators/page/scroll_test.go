package page

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"vgpud/clock"
	"vgpud/mediator/access"
)

// BenchmarkScroll scrolls through 64 guests of a page that is brought up to date each second, a step
// a frame, and reports how many frames there are a second and what each costs the page's thread in
// processor time. Chromium draws them without a GPU here.
func BenchmarkScroll(b *testing.B) {
	browser := openBrowser(b)
	s := serve(b, many(64), 600, access.Viewer, nil)
	browser.size(1180, 900, 1, false)
	browser.open(s.url)
	if _, err := chromedp.Call(browser.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var passing sync.WaitGroup
	passing.Go(func() {
		for clock.Tick(ctx, clock.Real{}, time.Second) == nil {
			s.pass()
		}
	})
	defer passing.Wait()
	defer cancel()
	var spent, frames, seconds, worst float64
	for b.Loop() {
		before := busy(b, browser)
		got := eval[[]float64](browser, `new Promise((done) => {
			const times = [];
			let step = 12;
			const frame = (now) => {
				times.push(now);
				if (times.length > 600) { done(times); return; }
				if (scrollY + innerHeight >= document.documentElement.scrollHeight - 1) step = -12;
				if (scrollY <= 0 && times.length > 1) step = 12;
				scrollBy(0, step);
				requestAnimationFrame(frame);
			};
			requestAnimationFrame(frame);
		})`)
		spent += busy(b, browser) - before
		frames += float64(len(got) - 1)
		seconds += (got[len(got)-1] - got[0]) / 1000
		for i := 1; i < len(got); i++ {
			worst = max(worst, got[i]-got[i-1])
		}
	}
	b.ReportMetric(frames/seconds, "frames/s")
	b.ReportMetric(1000*spent/frames, "thread-ms/frame")
	b.ReportMetric(worst, "worst-ms/frame")
}

// busy returns how much processor time the page's thread has used for tasks, in seconds.
func busy(b *testing.B, browser *browser) float64 {
	b.Helper()
	m, err := chromedp.Call(browser.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		b.Fatal(err)
	}
	for _, metric := range m.Metrics {
		if metric.Name == "TaskDuration" {
			return metric.Value
		}
	}
	b.Fatal("Chromium does not measure its tasks")
	return 0
}
