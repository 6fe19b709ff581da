package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A look is how a picture is coloured.
type look struct {
	name             string
	paper, ink, grid color.Color
	contenders       map[string]color.Color
}

var looks = []look{
	{"light", color.Gray{0xff}, color.Gray{0x22}, color.Gray{0xdd}, map[string]color.Color{
		nameLibrary: color.RGBA{0x1f, 0x6f, 0xeb, 0xff}, nameAsynq: color.RGBA{0xd9, 0x7a, 0x0a, 0xff},
		nameBullMQ: color.RGBA{0xcf, 0x22, 0x4e, 0xff}, nameBeanstalkd: color.RGBA{0x1a, 0x7f, 0x37, 0xff},
		nameRiver: color.RGBA{0x82, 0x50, 0xdf, 0xff}}},
	{"dark", color.RGBA{0x0d, 0x11, 0x17, 0xff}, color.Gray{0xdd}, color.Gray{0x33}, map[string]color.Color{
		nameLibrary: color.RGBA{0x58, 0xa6, 0xff, 0xff}, nameAsynq: color.RGBA{0xf0, 0xa0, 0x40, 0xff},
		nameBullMQ: color.RGBA{0xff, 0x7b, 0x96, 0xff}, nameBeanstalkd: color.RGBA{0x3f, 0xb9, 0x50, 0xff},
		nameRiver: color.RGBA{0xbc, 0x8c, 0xff, 0xff}}},
}

// A picture is drawn in each look, as name-light.svg and name-dark.svg.
type picture struct {
	section   string // whose table it shows
	name, alt string
	height    float64 // points
	draw      func(l look, p *plot.Plot) error
}

const pictureWidth = 620 // points

// pictures of the comparison.
func (r *peersRun) pictures() []picture {
	return []picture{
		{titleThroughput, "bench", "Messages a second, sent and handled, by contender", 330, r.drawThroughput},
		{titleLateness, "bench-lateness", "Lateness by percentile, by contender", 280, r.drawLateness},
		{titleBacklog, "bench-backlog", "Server CPU of a message against what is pending, by contender", 280, r.drawBacklog},
		{titleBacklog, "bench-memory", "Memory of a pending message, by contender", 170, r.drawMemory},
	}
}

// markdown shows it, in the look of the reader.
func (p picture) markdown() string {
	return fmt.Sprintf(`<picture><source media="(prefers-color-scheme: dark)" srcset="%s-dark.svg">`+
		`<img src="%s-light.svg" alt="%s"></picture>`, p.name, p.name, p.alt)
}

// write draws it into a folder, in each look.
func (p picture) write(folder string) error {
	for _, l := range looks {
		svg, err := l.svg(p)
		if err != nil {
			return fmt.Errorf("draw: %s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+"-"+l.name+".svg"), svg, 0o644); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
	}
	return nil
}

func (l look) svg(what picture) ([]byte, error) {
	p := plot.New()
	p.BackgroundColor = l.paper
	p.Title.Padding = vg.Points(6)
	l.write(&p.Title.TextStyle, 13)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.Color = l.grid, l.grid
		axis.Tick.Length = 0
		l.write(&axis.Tick.Label, 10)
		l.write(&axis.Label.TextStyle, 10)
	}
	l.write(&p.Legend.TextStyle, 11)
	if err := what.draw(l, p); err != nil {
		return nil, err
	}
	canvas := vgsvg.New(vg.Points(pictureWidth), vg.Points(what.height))
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

// write sets the colour and the size of a text.
func (l look) write(style *text.Style, points float64) {
	style.Color, style.Font.Variant, style.Font.Size = l.ink, "Sans", vg.Points(points)
}

// A barRow is a row of bars, one for each contender.
type barRow struct {
	row, label string
	metric
}

// bars draws rows of bars, the lowest first, with a figure behind each; a contender without a figure has none. The
// widest bar leaves a part of the width free, where the names of the contenders stand beside the bars of the top row.
func (r *peersRun) bars(l look, p *plot.Plot, free float64, rows []barRow) error {
	p.HideX()
	p.Y.LineStyle.Width, p.Y.Padding = 0, vg.Points(10) // readers may have a wider font
	p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = true, -vg.Points(8), -vg.Points(8), vg.Points(3)
	const thick = 12
	all := r.measured()
	for i, c := range all {
		offset := vg.Points(thick * (float64(len(all)-1)/2 - float64(i)))
		values, at := make(plotter.Values, len(rows)), plotter.XYLabels{}
		for j, row := range rows {
			v, ok := r.res.of(row.row, c.name, row.metric)
			if ok {
				values[j] = v
			}
			at.XYs = append(at.XYs, plotter.XY{X: values[j], Y: float64(j)})
			at.Labels = append(at.Labels, choose(ok, figure(v), "none"))
		}
		bars, err := plotter.NewBarChart(values, vg.Points(thick-1))
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width, bars.Offset = true, l.contenders[c.name], 0, offset
		labels, err := plotter.NewLabels(at)
		if err != nil {
			return err
		}
		labels.Offset = vg.Point{X: vg.Points(4), Y: offset}
		for k := range labels.TextStyle {
			l.write(&labels.TextStyle[k], 9)
			labels.TextStyle[k].YAlign = text.YCenter
		}
		p.Add(bars, labels)
		p.Legend.Add(c.name, bars)
	}
	labels := make([]string, len(rows))
	for i, row := range rows {
		labels[i] = row.label
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, p.X.Max/(1-free)
	return nil
}

// measured are the contenders that were.
func (r *peersRun) measured() []contender {
	return slices.DeleteFunc(contenders(), func(c contender) bool {
		return r.missing[c.name] != nil || !r.only.MatchString(c.name)
	})
}

func (r *peersRun) drawThroughput(l look, p *plot.Plot) error {
	p.Title.Text = "Messages a second, of 100 bytes"
	return r.bars(l, p, 0.1, []barRow{
		{drain64, "handled by 64 workers", rate}, {sendBatch, "sent in batches of 500", rate},
		{send64, "sent by 64 callers", rate}, {send1, "sent one at a time", rate},
	})
}

func (r *peersRun) drawMemory(l look, p *plot.Plot) error {
	levels := r.peerLevels()
	most := levels[len(levels)-1]
	p.Title.Text = fmt.Sprintf("Bytes of a pending message of 100 bytes, with %s pending", count(most))
	return r.bars(l, p, 0.3, []barRow{{backlogName("memory", most), "", bytesEach}})
}

// latePercentiles are the points of the lateness curve.
var latePercentiles = []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999}

// lateFloor is the least that a logarithmic scale shows, in ms.
const lateFloor = 0.1

func (r *peersRun) drawLateness(l look, p *plot.Plot) error {
	p.Title.Text = "How late a handler starts, in ms: messages due at random instants"
	p.X.Label.Text = "percent of the messages are no later"
	var lines []curve
	for _, one := range r.measured() {
		ms := slices.Sorted(slices.Values(r.late[one.name])) // not empty
		c := curve{name: one.name}
		for _, q := range latePercentiles {
			c.points = append(c.points, plotter.XY{X: lateAt(q), Y: max(quantile(ms, q), lateFloor)})
		}
		lines = append(lines, c)
	}
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99, 0.999} {
		p.X.Tick.Marker = withTick(p.X.Tick.Marker, plot.Tick{Value: lateAt(q), Label: fmt.Sprint(100 * q)})
	}
	return l.curves(p, lines)
}

// lateAt is where a percentile stands: each further nine is as wide as the one before.
func lateAt(q float64) float64 { return -math.Log10(1 - q) }

func (r *peersRun) drawBacklog(l look, p *plot.Plot) error {
	p.Title.Text = "Server CPU of a message, sent and handled, in microseconds"
	p.X.Label.Text = "messages pending meanwhile"
	var lines []curve
	for _, one := range r.measured() {
		c := curve{name: one.name}
		for _, level := range r.peerLevels() {
			sent, ok := r.res.of(backlogName("send", level), c.name, serverCPU)
			handled, ok2 := r.res.of(backlogName("drain", level), c.name, serverCPU)
			if ok && ok2 && sent+handled > 0 {
				c.points = append(c.points, plotter.XY{X: math.Log10(float64(level)), Y: sent + handled})
			}
		}
		lines = append(lines, c)
	}
	for _, level := range r.peerLevels() {
		p.X.Tick.Marker = withTick(p.X.Tick.Marker, plot.Tick{Value: math.Log10(float64(level)), Label: count(level)})
	}
	return l.curves(p, lines)
}

// withTick adds a tick to constant ones.
func withTick(to plot.Ticker, tick plot.Tick) plot.Ticker {
	ticks, _ := to.(plot.ConstantTicks) // none yet
	return append(ticks, tick)
}

// A curve is a line of a contender.
type curve struct {
	name   string
	points plotter.XYs
}

// curves draws lines over a logarithmic Y, with the name at the end of each.
func (l look) curves(p *plot.Plot, lines []curve) error {
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = l.grid
	p.Add(grid)
	lines = slices.DeleteFunc(lines, func(c curve) bool { return len(c.points) == 0 })
	slices.SortFunc(lines, func(a, b curve) int {
		return cmp.Compare(a.points[len(a.points)-1].Y, b.points[len(b.points)-1].Y)
	})
	lowest, highest := math.Inf(1), 0.0
	for _, c := range lines {
		for _, at := range c.points {
			lowest, highest = min(lowest, at.Y), max(highest, at.Y)
		}
	}
	// Names must not lie over each other: each is at least a part of the height above the one below.
	apart := math.Pow(highest/lowest, 0.075)
	last := 0.0
	for _, c := range lines {
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return err
		}
		line.Color, line.Width = l.contenders[c.name], vg.Points(2)
		end := c.points[len(c.points)-1]
		last = max(end.Y, last*apart)
		name, err := plotter.NewLabels(plotter.XYLabels{
			XYs: []plotter.XY{{X: end.X, Y: last}}, Labels: []string{c.name}})
		if err != nil {
			return err
		}
		name.Offset.X = vg.Points(5)
		l.write(&name.TextStyle[0], 11)
		name.TextStyle[0].Color, name.TextStyle[0].YAlign = l.contenders[c.name], text.YCenter
		p.Add(line, name)
	}
	p.X.Max += (p.X.Max - p.X.Min) * 0.16 // where the names stand
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(lowest)))
	p.Y.Max = math.Pow(10, math.Ceil(math.Log10(max(highest, last))))
	return nil
}
