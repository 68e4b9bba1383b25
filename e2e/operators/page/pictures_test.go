package page

import (
	"testing"

	"github.com/chromedp/chromedp"

	"vgpud/mediator/access"
)

// TestPictures takes the pictures of docs/:
//
//	go test ./e2e/operators/page -operators -run Pictures -screenshots $PWD/docs
func TestPictures(t *testing.T) {
	b := openBrowser(t)
	s := serve(t, day(), 900, access.Operator, billed(t))
	b.size(1080, 1290, 1, false)
	b.open(s.url)
	b.until("the events", `document.querySelectorAll("#events li").length === 4`)
	b.picture("web-light")
	b.size(1080, 1290, 1, true)
	b.click("#budgets-title")
	b.picture("web-dark")
	b.size(390, 844, 1, false)
	b.click("#guest-table tbody tr:nth-of-type(3) th button")
	b.run(chromedp.Func(evaluates(`document.getElementById("guests").scrollIntoView()`)))
	b.picture("web-phone")
	b.size(1080, 700, 1, false)
	b.openDialog("#guest-table tbody tr:nth-of-type(6) .actions button")
	b.fill("#field-weight", "2")
	b.click("#change-next")
	b.until("the confirmation", `!document.getElementById("change-confirm").hidden`)
	b.picture("web-change")
}
