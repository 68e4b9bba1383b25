package exposition

import (
	"fmt"
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// maxRequests is the number of requests that are answered at a time.
const maxRequests = 8

// Handler returns a handler of requests for a source's series and those of a program's own registry.
// It answers in Prometheus' text format, or in what else client_golang knows if a request prefers that
// or chooses series by name, and compresses the answer where the request allows it.
func Handler(s Source, own prometheus.Gatherer) http.Handler {
	described := prometheus.NewRegistry()
	described.MustRegister(Collector(s))
	others := promhttp.HandlerFor(prometheus.Gatherers{own, described}, promhttp.HandlerOpts{DisableCompression: true})
	compress, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false), gzhttp.ContentTypeFilter(gzhttp.CompressAllContentTypeFilter))
	if err != nil {
		panic(err) // the options are constant
	}
	inFlight := make(chan struct{}, maxRequests)
	return compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case inFlight <- struct{}{}:
			defer func() { <-inFlight }()
		default:
			http.Error(w, fmt.Sprintf("%d requests for metrics are being answered; try again later", maxRequests), http.StatusServiceUnavailable)
			return
		}
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
