package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawn are the rows of the picture, the lowest first.
var drawn = []struct{ row, label string }{
	{liveAll, "sent and handled at once"},
	{drain64, "handled by 64 workers"},
	{send64, "sent by 64 goroutines"},
	{send1, "sent one at a time"},
}

// A look is how a picture is coloured.
type look struct {
	name       string
	paper, ink color.Color
	systems    map[string]color.Color
}

var looks = []look{
	{"light", color.Gray{0xff}, color.Gray{0x22}, map[string]color.Color{
		nameLibrary: color.RGBA{0x1f, 0x6f, 0xeb, 0xff}, nameAsynq: color.RGBA{0xe0, 0x8a, 0x1e, 0xff},
		nameFloor: color.Gray{0xb4}}},
	{"dark", color.RGBA{0x0d, 0x11, 0x17, 0xff}, color.Gray{0xdd}, map[string]color.Color{
		nameLibrary: color.RGBA{0x58, 0xa6, 0xff, 0xff}, nameAsynq: color.RGBA{0xf0, 0xa0, 0x40, 0xff},
		nameFloor: color.Gray{0x66}}},
}

// drawThroughput writes the picture of the README into a folder, in each look.
func drawThroughput(folder string, res *results) error {
	for _, l := range looks {
		svg, err := l.throughput(res)
		if err != nil {
			return fmt.Errorf("draw: %w", err)
		}
		if err := os.WriteFile(filepath.Join(folder, "bench-"+l.name+".svg"), svg, 0o644); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
	}
	return nil
}

// throughput has a bar for each system in each row, and its figure behind.
func (l look) throughput(res *results) ([]byte, error) {
	p := plot.New()
	p.BackgroundColor = l.paper
	p.Title.Text = "Messages a second, of 100 bytes"
	p.Title.Padding = vg.Points(6)
	p.HideX()
	p.Y.LineStyle.Width = 0
	p.Y.Padding = 0
	l.write(&p.Title.TextStyle, 13)
	l.write(&p.Y.Tick.Label, 11)
	l.write(&p.Legend.TextStyle, 11)
	p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = -vg.Points(8), vg.Points(8), vg.Points(3)

	const thick = 12
	systems := []string{nameLibrary, nameAsynq, nameFloor}
	for i, system := range systems {
		bars, figures, err := l.bars(res, system)
		if err != nil {
			return nil, err
		}
		bars.Offset = vg.Points(thick * float64(1-i))
		figures.Offset = vg.Point{X: vg.Points(4), Y: bars.Offset}
		bars.Width = vg.Points(thick)
		p.Add(bars, figures)
		p.Legend.Add(choose(system == nameFloor, "bare commands", system), bars)
	}
	names := make([]string, len(drawn))
	for i, d := range drawn {
		names[i] = d.label
	}
	p.NominalY(names...)
	p.Y.Tick.Length = 0
	p.X.Min, p.X.Max = 0, 1.1*p.X.Max

	canvas := vgsvg.New(vg.Points(620), vg.Points(250))
	whole := draw.New(canvas)
	whole.SetColor(l.paper)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, vg.Points(8), -vg.Points(8), vg.Points(4), -vg.Points(8)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// Readers need not have the font by which gonum/plot measures.
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

// bars of one system, and their figures.
func (l look) bars(res *results, system string) (*plotter.BarChart, *plotter.Labels, error) {
	values, at := make(plotter.Values, len(drawn)), plotter.XYLabels{}
	for i, d := range drawn {
		v, ok := res.of(d.row, system, rate)
		if !ok {
			return nil, nil, fmt.Errorf("%q was not measured of %s", d.row, system)
		}
		values[i] = v
		at.XYs, at.Labels = append(at.XYs, plotter.XY{X: v, Y: float64(i)}), append(at.Labels, figure(v))
	}
	bars, err := plotter.NewBarChart(values, 1)
	if err != nil {
		return nil, nil, err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, l.systems[system], 0
	figures, err := plotter.NewLabels(at)
	if err != nil {
		return nil, nil, err
	}
	for i := range figures.TextStyle {
		l.write(&figures.TextStyle[i], 9)
		figures.TextStyle[i].YAlign = text.YCenter
	}
	return bars, figures, nil
}

// write sets the colour and the size of a text.
func (l look) write(style *text.Style, points float64) {
	style.Color, style.Font.Variant, style.Font.Size = l.ink, "Sans", vg.Points(points)
}
