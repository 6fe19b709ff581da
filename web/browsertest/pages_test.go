package browsertest

import (
	"testing"
)

// looks are those with which each page is looked at.
var looks = []look{
	{width: 1600, language: "en", script: true},
	{width: 360, language: "en", script: false},
	{width: 360, language: "zh-CN", script: true, dark: true},
	{width: 1600, language: "zh-CN", script: false, dark: true},
}

// Each page can be read in each look: nobody is shut out, nothing sticks out, and the browser has nothing to complain of.
func TestPages(t *testing.T) {
	for _, l := range looks {
		t.Run(l.name(), func(t *testing.T) {
			tb := newTab(t, l)
			for _, page := range pages(t) {
				tb.open(shop.url + page.address)
				for _, text := range page.says[l.language[:2]] {
					tb.sees("main", text)
				}
				tb.fits(page.address)
				tb.accessible(page.address)
			}
		})
	}
}

type pageTest struct {
	address string
	says    map[string][]string // by language
}

func pages(t *testing.T) []pageTest {
	return []pageTest{
		{"", map[string][]string{"en": {"orders", "mails", "no consumers", "cannot be read"}, "zh": {"orders", "没有消费者"}}},
	}
}
