package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The drawing's measures, in pixels.
const (
	width                       = 1080
	left, right, top, bottom    = 64, 16, 56, 96
	plotWidth, plotHeight       = width - left - right, 268
	legendStep, swatch, tickLen = 150, 10, 4
	letter                      = 6 // about
)

// height is the whole drawing's: names below bars stand upright, nearly.
func (f *Figure) height() int {
	longest := 0
	for _, r := range f.Rows {
		longest = max(longest, utf8.RuneCountInString(r.Name))
	}
	if f.Lines {
		longest = 0
	}
	return top + plotHeight + max(bottom, 24+longest*letter*9/10)
}

// legend is how far apart the columns' names are.
func (f *Figure) legend() int {
	longest := 0
	for _, c := range f.Columns {
		longest = max(longest, utf8.RuneCountInString(c))
	}
	return max(legendStep, min(swatch+20+longest*letter, plotWidth/max(1, len(f.Columns)-1)))
}

// colours are distinguishable without colour vision (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000", "#999999"}

// SVG draws the figure.
func (f *Figure) SVG() string {
	var b strings.Builder
	open(&b, f.height())
	f.draw(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// Page draws figures below one another.
func Page(figures []Figure) string {
	var b strings.Builder
	height := 0
	for i := range figures {
		height += figures[i].height()
	}
	open(&b, height)
	at := 0
	for i := range figures {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", at)
		figures[i].draw(&b)
		b.WriteString("</g>\n")
		at += figures[i].height()
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func open(b *strings.Builder, height int) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
}

func (f *Figure) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="18" font-size="14">Figure %s. %s</text>`+"\n", left, html.EscapeString(f.Number), html.EscapeString(f.Title))
	for i, name := range f.Columns[1:] {
		x := left + i*f.legend()
		fmt.Fprintf(b, `<rect x="%d" y="30" width="%d" height="%d" fill="%s"/><text x="%d" y="39">%s</text>`+"\n",
			x, swatch, swatch, colours[i%len(colours)], x+swatch+5, html.EscapeString(name))
	}
	low, high, ticks := f.axis()
	part := func(v float64) float64 { return (min(max(v, low), high) - low) / (high - low) }
	if f.Log {
		ticks, low, high = f.decades()
		part = func(v float64) float64 {
			return (math.Log10(min(max(v, low), high)) - math.Log10(low)) / (math.Log10(high) - math.Log10(low))
		}
	}
	y := func(v float64) float64 { return top + plotHeight*(1-part(v)) }
	for _, v := range ticks {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y(v), width-right, y(v), left-tickLen-2, y(v)+4, strconv.FormatFloat(math.Round(v*1000)/1000, 'g', -1, 64))
	}
	fmt.Fprintf(b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", top+plotHeight/2, html.EscapeString(f.YLabel))
	if f.Lines {
		f.drawLines(b, y)
	} else {
		f.drawBars(b, y, max(low, min(0, high)))
	}
}

// decades are the powers of ten around the values.
func (f *Figure) decades() (ticks []float64, low, high float64) {
	low, high = math.Inf(1), 0
	for _, r := range f.Rows {
		for _, v := range r.Values {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		low, high = 1, 10 // nothing is drawn
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if high <= low {
		high = 10 * low
	}
	for v := low; v <= high*1.001; v *= 10 {
		ticks = append(ticks, v)
	}
	return ticks, low, high
}

// axis is the range of values to show and its ticks.
func (f *Figure) axis() (low, high float64, ticks []float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, r := range f.Rows {
		for _, v := range r.Values {
			if !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if !f.Lines {
		low, high = min(low, 0), max(high, 0)
	}
	if high-low < 0.1 {
		high, low = high+0.05, low-0.05
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, m := range []float64{5, 2} {
		if (high-low)/(m*step) >= 4 {
			step *= m
			break
		}
	}
	low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	for v := low; v <= high+step/2; v += step {
		ticks = append(ticks, v)
	}
	return low, high, ticks
}

// drawLines draws each column over the rows' names as numbers.
func (f *Figure) drawLines(b *strings.Builder, y func(float64) float64) {
	at := make([]float64, len(f.Rows))
	for i, r := range f.Rows {
		v, err := strconv.ParseFloat(r.Name, 64)
		if err != nil {
			panic(fmt.Sprintf("a figure of lines has a row named %q, which is no number", r.Name))
		}
		at[i] = v
	}
	first, last := at[0], at[len(at)-1]
	x := func(v float64) float64 { return left + 12 + (plotWidth-24)*(v-first)/(last-first) }
	for i, r := range f.Rows {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(at[i]), top+plotHeight+16, r.Name)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+plotWidth/2, top+plotHeight+36, html.EscapeString(f.XLabel))
	for c := range f.Columns[1:] {
		var points []string
		for i, r := range f.Rows {
			if math.IsNaN(r.Values[c]) {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(at[i]), y(r.Values[c])))
			r.drawSpread(b, y, c, x(at[i]))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colours[c%len(colours)])
	}
}

// drawBars draws a group of bars for each row, from base.
func (f *Figure) drawBars(b *strings.Builder, y func(float64) float64, base float64) {
	group := float64(plotWidth) / float64(len(f.Rows))
	bar := group * 0.8 / float64(len(f.Columns)-1)
	for i, r := range f.Rows {
		x := left + group*float64(i)
		for c, v := range r.Values {
			if math.IsNaN(v) {
				continue
			}
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
				x+bar*float64(c), min(y(v), y(base)), bar, math.Abs(y(base)-y(v)), colours[c%len(colours)])
			r.drawSpread(b, y, c, x+bar*(float64(c)+0.5))
		}
		fmt.Fprintf(b, `<text transform="translate(%.1f %d) rotate(-60)" text-anchor="end">%s</text>`+"\n",
			x+group/2, top+plotHeight+12, html.EscapeString(r.Name))
	}
}

// drawSpread draws a value's standard deviation to both sides of it, at x.
func (r *Row) drawSpread(b *strings.Builder, y func(float64) float64, column int, x float64) {
	if d, ok := r.spread(column); ok && d > 0 {
		v := r.Values[column]
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#444"/>`+"\n", x, y(v-d), x, y(v+d))
	}
}
