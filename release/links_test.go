package main

import (
	"slices"
	"testing"
)

func TestCheckLinks(t *testing.T) {
	const nowhere = "docs" + "/nowhere.md" // in two pieces, because this file is checked too
	const guide = "# The guide: `Send(x)`, [here](#one)!\n\n## One\n\n" +
		"```\n# no heading, [no link](nowhere.md)\n```\n\n## One\n\n## 每个客户，一次\n"
	dir := aHouse(t, map[string]string{
		"pages/guide.md": guide,
		"pages/right.md": "[a](guide.md) [b](../README.md) [c](../docs) [d](#right) [e](guide.md#one-1 \"twice\")\n" +
			"[f](guide.md#the-guide-sendx-here) [g](guide.md#每个客户一次) [h](https://example.com/x.md#y) [i](..)\n\n" +
			"| [j] | `[k](nowhere.md)` | `consume/a.go` | `a.go` | `x/*.go` |\n|---|---|---|---|---|\n\n" +
			"# Right\n\n[j]: guide.md\n",
		"pages/wrong.md": "[a](nowhere.md) [b](README.md) [c](#guide) [d](guide.md#one-2) ![e](nowhere.png)\n" +
			"[f](guide.md#no-heading) [g](../ops/a.go#L1) [h](../built) [i](Guide.md)\n\n" +
			"| `consume/b.go` | `sume/a.go` |\n|---|---|\n",
		"b.go":     "package a\n\n// docs/redis.md, " + nowhere + ", my" + nowhere + "\n",
		"lib.lua":  "-- " + nowhere + "\n",
		"Makefile": "# " + nowhere + "\n",
		"text.txt": nowhere,
	})
	var want []string
	for _, link := range []string{
		"nowhere.md", "README.md", "#guide", "guide.md#one-2", "nowhere.png", "guide.md#no-heading", "../ops/a.go#L1",
		"../built", "Guide.md",
	} {
		want = append(want, "pages/wrong.md has a link that leads nowhere: "+link)
	}
	for _, name := range [][2]string{
		{"pages/wrong.md", "consume/b.go"}, {"pages/wrong.md", "sume/a.go"},
		{"b.go", nowhere}, {"lib.lua", nowhere}, {"Makefile", nowhere},
	} {
		want = append(want, name[0]+" names "+name[1]+", which does not exist")
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(checkLinks(dir))); !slices.Equal(got, want) {
		t.Errorf("says\n%q\nwant\n%q", got, want)
	}
}
