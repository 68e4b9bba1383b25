package exposition

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// maxRequests is the number of requests that are answered at a time, of which each sender has
// maxRequestsEach: one that reads slowly keeps others from none.
const (
	maxRequests     = 8
	maxRequestsEach = 3
)

// Handler returns a handler of requests for a source's series and those of a program's own registry.
// It answers in Prometheus' text format, or in what else client_golang knows if a request prefers that
// or chooses series by name, and compresses the answer where the request allows it. sender returns the
// identity that a request counts for.
func Handler(s Source, own prometheus.Gatherer, sender func(*http.Request) string) http.Handler {
	described := prometheus.NewRegistry()
	described.MustRegister(Collector(s))
	others := promhttp.HandlerFor(prometheus.Gatherers{own, described}, promhttp.HandlerOpts{DisableCompression: true})
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false), gzhttp.ContentTypeFilter(gzhttp.CompressAllContentTypeFilter))
	if err != nil {
		panic(err) // the options are constant
	}
	var answering inFlight
	return compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := sender(r)
		if problem := answering.begin(from); problem != "" {
			http.Error(w, problem, http.StatusServiceUnavailable)
			return
		}
		defer answering.end(from)
		format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
		if format.FormatType() != expfmt.TypeTextPlain || r.URL.Query().Has("name[]") {
			others.ServeHTTP(w, r)
			return
		}
		families, err := own.Gather()
		if err != nil {
			http.Error(w, "gather the daemon's own metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Content-Type", string(format))
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
				return // the reader left
			}
		}
		text := NewText(w)
		s.Collect(text)
		text.Flush() // an error says that the reader left
	}))
}

// inFlight counts the requests that are being answered.
type inFlight struct {
	mu   sync.Mutex
	all  int
	each map[string]int
}

// begin counts a request, or returns why it can't be answered now.
func (f *inFlight) begin(sender string) (problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.all >= maxRequests:
		return fmt.Sprintf("%d requests for metrics are being answered; try again later", maxRequests)
	case f.each[sender] >= maxRequestsEach:
		return fmt.Sprintf("%d requests of %s for metrics are being answered; try again later", maxRequestsEach, sender)
	}
	f.all++
	if f.each == nil {
		f.each = make(map[string]int)
	}
	f.each[sender]++
	return ""
}

func (f *inFlight) end(sender string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all--
	if f.each[sender]--; f.each[sender] == 0 {
		delete(f.each, sender)
	}
}
