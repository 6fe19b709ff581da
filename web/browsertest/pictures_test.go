package browsertest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "folder for the README's pictures of the page; none: they are made and thrown away")

// TestPictures makes the pictures of the README: the board and a queue, light and dark.
func TestPictures(t *testing.T) {
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	for name, dark := range map[string]bool{"light": false, "dark": true} {
		tb := newTab(t, look{width: 1280, language: "en", script: true, dark: dark})
		for page, address := range map[string]string{"board": "", "queue": "queue?q=orders"} {
			tb.open(shop.url + address)
			var png []byte
			tb.run(chromedp.CaptureScreenshot(&png))
			ok(t, os.WriteFile(filepath.Join(dir, "web-"+page+"-"+name+".png"), png, 0o644))
		}
	}
}
