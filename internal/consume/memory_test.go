package consume

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestOneKeepsFew: a delivery whose handler runs on keeps few others of its fetch in memory, and a message that a
// handler keeps does not keep the text with all ids.
func TestOneKeepsFew(t *testing.T) {
	var text strings.Builder
	for i := range script.MaxBatch {
		fmt.Fprintf(&text, "%036d ", i)
	}
	ids := text.String()
	got := script.FetchReply{Tags: strings.Fields(ids), Lease: &script.Lease{Name: "c:1"}}
	for range got.Tags {
		e := message.Envelope{Payload: "x"}
		got.Envelopes = append(got.Envelopes, e.Encode(message.When{Us: 1, Absolute: true}))
	}
	ds := decode(nil, &got, time.Now(), time.Now())
	first, msg, others := ds[0], ds[0].message(), []weak.Pointer[delivery]{}
	for _, d := range ds[1:] {
		others = append(others, weak.Make(d))
	}
	left := func() (n int) {
		runtime.GC()
		for _, w := range others {
			if w.Value() != nil {
				n++
			}
		}
		return n
	}
	list := weak.Make(unsafe.StringData(ids))
	ds, got, ids = nil, script.FetchReply{}, ""
	text.Reset()
	if n := left(); n > 10 {
		t.Errorf("%d others are in memory, want 10 at most", n)
	}
	runtime.KeepAlive(first)
	first = nil
	if runtime.GC(); list.Value() != nil {
		t.Error("the text with all ids is in memory")
	}
	runtime.KeepAlive(msg)
}
