package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The files of the plots.
const (
	plotThroughput = "throughput.svg"
	plotLateness   = "lateness.svg"
	plotBacklog    = "backlog.svg"
)

const plotWidth, plotHeight = 9 * vg.Inch, 4 * vg.Inch

// systemColors can be told apart by anybody (Okabe and Ito).
var systemColors = map[string]color.Color{
	nameLibrary: color.RGBA{0x00, 0x72, 0xb2, 0xff},
	nameAsynq:   color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	nameFloor:   color.RGBA{0x99, 0x99, 0x99, 0xff},
}

// drawPlots draws what there are results for and says which files it wrote.
func drawPlots(dir string, res *results) (map[string]bool, error) {
	drawn := map[string]bool{}
	for file, make := range map[string]func(*results) (*plot.Plot, error){
		plotThroughput: throughputPlot, plotLateness: latenessPlot, plotBacklog: backlogPlot,
	} {
		p, err := make(res)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if p == nil {
			continue
		}
		if err := p.Save(plotWidth, plotHeight, filepath.Join(dir, file)); err != nil {
			return nil, err
		}
		drawn[file] = true
	}
	return drawn, nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Legend.XOffs = vg.Points(10)
	p.Add(plotter.NewGrid())
	return p
}

// throughputPlot has a bar for each system in each scenario.
func throughputPlot(res *results) (*plot.Plot, error) {
	var rows []*row
	var names []string
	highest := 0.0
	for _, name := range []string{send1, send64, sendBatch, drain64, drain1, liveAll} {
		if r := res.find(name); r != nil {
			rows, names = append(rows, r), append(names, name)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	p := newPlot("Throughput", "", "thousand messages/s")
	width := vg.Points(20)
	for i, system := range systemNames {
		values := make(plotter.Values, len(rows))
		labels := plotter.XYLabels{XYs: make(plotter.XYs, len(rows)), Labels: make([]string, len(rows))}
		for j, r := range rows {
			labels.XYs[j].X = float64(j)
			if v, ok := r.median(system, rate); ok {
				values[j] = v / 1000
				labels.XYs[j].Y, labels.Labels[j] = v/1000, figure(v/1000)
				highest = max(highest, v/1000)
			}
		}
		offset := width * vg.Length(i-1) * 1.1
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = systemColors[system], 0, offset
		tops, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		tops.Offset.X, tops.Offset.Y = offset, vg.Points(2)
		for k := range tops.TextStyle {
			tops.TextStyle[k].XAlign = draw.XCenter
			tops.TextStyle[k].Font.Size = vg.Points(7)
		}
		p.Add(bars, tops)
		p.Legend.Add(system, bars)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Font.Size = vg.Points(9)
	p.Y.Min, p.Y.Max = 0, highest*1.2
	p.X.Min, p.X.Max = -0.6, float64(len(rows))-0.4
	return p, nil
}

// floorMs is what counts as the shortest lateness, for a log axis has no zero.
const floorMs = 0.1

// curvePoints bounds the size of a curve.
const curvePoints = 400

// latenessPlot shows what share of messages was handled within how long.
func latenessPlot(res *results) (*plot.Plot, error) {
	p := newPlot("Lateness of scheduled messages, cumulative", "ms after due (log)", "share of messages")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, msTicks{}
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = 0, 1, floorMs, 10_000
	dashes := [][]vg.Length{nil, {vg.Points(5), vg.Points(3)}, {vg.Points(1.5), vg.Points(2)}}
	lines := 0
	for i, consumers := range lateConsumers {
		r := res.find(lateName(consumers))
		if r == nil {
			continue
		}
		for _, system := range systemNames {
			curve := r.curves[system]
			if len(curve) == 0 {
				continue
			}
			line, err := plotter.NewLine(cumulative(curve))
			if err != nil {
				return nil, err
			}
			line.Color, line.Width, line.Dashes = systemColors[system], vg.Points(1.8), dashes[i%len(dashes)]
			p.Add(line)
			p.Legend.Add(system+strings.TrimPrefix(lateName(consumers), "lateness"), line)
			lines++
		}
	}
	if lines == 0 {
		return nil, nil
	}
	p.Legend.XOffs = 4 * vg.Inch // between the library and asynq
	p.Legend.YOffs = -vg.Points(20)
	return p, nil
}

// cumulative is the curve of sorted values, thinned out.
func cumulative(sorted []float64) plotter.XYs {
	var points plotter.XYs
	for i := range curvePoints + 1 {
		share := float64(i) / curvePoints
		points = append(points, plotter.XY{X: max(quantile(sorted, share), floorMs), Y: share})
	}
	return points
}

// msTicks marks the powers of ten.
type msTicks struct{}

func (msTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		v := math.Pow(10, e)
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
	}
	return ticks
}

// backlogPlot shows the Redis CPU of a message against what else is pending.
func backlogPlot(res *results) (*plot.Plot, error) {
	p := newPlot("Cost against backlog", "messages pending", "Redis CPU, us a message (log)")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, costTicks{}
	levels := backlogLevels(res.find(backlogName("send", backlogLevels(false)[nameLibrary][1])) == nil)[nameLibrary]
	names := make([]string, len(levels))
	low, high := math.Inf(1), 0.0
	for i, what := range []string{"send", "drain"} {
		for _, system := range systemNames {
			var points plotter.XYs
			for x, level := range levels {
				names[x] = count(level)
				if v, ok := res.of(backlogName(what, level), system, redisCPU); ok && v > 0 {
					points = append(points, plotter.XY{X: float64(x), Y: v})
					low, high = min(low, v), max(high, v)
				}
			}
			if len(points) == 0 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = systemColors[system], vg.Points(1.8)
			dots.Color, dots.Shape, dots.Radius = systemColors[system], draw.CircleGlyph{}, vg.Points(3)
			if i == 1 {
				line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
			}
			p.Add(line, dots)
			p.Legend.Add(system+", "+what, line)
		}
	}
	if high == 0 {
		return nil, nil
	}
	p.NominalX(names...)
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(low))), high*4
	p.X.Min, p.X.Max = -0.2, float64(len(levels))-0.8
	return p, nil
}

// costTicks marks 1, 2 and 5 of each power of ten.
type costTicks struct{}

func (costTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
			}
		}
	}
	return ticks
}
