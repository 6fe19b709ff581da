package main

import (
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// draw writes the samples as an SVG.
func (w *soakWatch) draw(path string) error {
	canvas := vgsvg.New(9*vg.Inch, 10*vg.Inch)
	if err := w.paint(draw.New(canvas)); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		_ = file.Close() // the first error counts
		return err
	}
	return file.Close()
}

// paint draws four plots, one below the other.
func (w *soakWatch) paint(canvas draw.Canvas) error {
	panels := []struct {
		title string
		of    func(sample) float64
	}{
		{"Redis memory, MB", func(s sample) float64 { return s.memory }},
		{"goroutines of a consumer", func(s sample) float64 { return s.goroutines }},
		{"messages in the queue", func(s sample) float64 { return s.backlog }},
		{"lateness, ms, 99th percentile", func(s sample) float64 { return s.late }},
	}
	plots := make([][]*plot.Plot, len(panels))
	for i, panel := range panels {
		p := plot.New()
		p.Title.Text, p.Y.Min = panel.title, 0
		if i == len(panels)-1 {
			p.X.Label.Text = "minutes"
		}
		points := make(plotter.XYs, len(w.samples))
		for j, s := range w.samples {
			points[j] = plotter.XY{X: s.at, Y: panel.of(s)}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color = color.RGBA{0x00, 0x72, 0xb2, 0xff}
		p.Add(plotter.NewGrid(), line)
		plots[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: vg.Points(12), PadRight: vg.Points(8)}
	for i, row := range plot.Align(plots, tiles, canvas) {
		plots[i][0].Draw(row[0])
	}
	return nil
}
