package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// libraryModule is what both sides have of their own.
const libraryModule = "github.com/go-delayqueue/delayqueue"

// thisTree is the side that is compared with a commit.
const thisTree = "this tree"

// againstRounds is how often each side measures each scenario.
const againstRounds = 9

// againstScenarios are measured if none are named.
var againstScenarios = []string{send64, sendBatch, drain64, liveAll, livePaced, lateName(1), memName}

// stopPatience is how long a side may take to stop its server.
const stopPatience = 20 * time.Second

// A duel measures the library of a commit and that of this tree. Each measurement is a process of its own. Both
// sides have the measuring program of this tree, and the versions of its dependencies.
type duel struct {
	commit string            // abbreviated, the name of its side
	note   string            // what both sides do not have in common
	exe    map[string]string // of each side, the bench that was built with its library
	quick  bool
}

// runAgainst measures scenarios with the library of a commit and with that of this tree, in turns, and prints ratios.
func runAgainst(ctx context.Context, commit string, chosen []scenario, rounds int, quick bool) (err error) {
	dir, err := os.MkdirTemp("", "bench-against-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := duel{quick: quick, exe: map[string]string{}}
	if d.commit, err = output(ctx, ".", "git", "rev-parse", "--short", "--verify", commit+"^{commit}"); err != nil {
		return err
	}
	tree := filepath.Join(dir, "tree")
	// Also after an interrupt, which ends ctx.
	defer func() { _, _ = output(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", tree) }()
	if _, err = output(ctx, ".", "git", "worktree", "add", "--detach", tree, d.commit); err != nil {
		return err
	}
	title, err := d.title(ctx, rounds)
	if err != nil {
		return err
	}
	fmt.Println("the bench is compiled with both libraries")
	if err := d.build(ctx, dir, tree); err != nil {
		return err
	}
	for i := range chosen {
		chosen[i].systems, chosen[i].rounds = []string{d.commit, thisTree}, rounds
	}
	b := newBench(os.Stdout, false)
	b.measure = d.measure
	res, err := b.run(ctx, chosen)
	if t := d.table(title+d.note, res); len(t.lines) > 0 { // after an error what there is
		printTables(os.Stdout, []table{t})
	}
	return err
}

// title says what is compared, and where.
func (d *duel) title(ctx context.Context, rounds int) (string, error) {
	head, err := output(ctx, ".", "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changes, err := output(ctx, ".", "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changes != "" {
		head += " with its uncommitted changes"
	}
	a, err := describeMachine(ctx)
	return fmt.Sprintf("%s, %s, against %s: medians of %d rounds in turns, and min..max of each\n%s, %s",
		thisTree, head, d.commit, rounds, a.machine, a.versions[0]), err
}

// build makes the executables of both sides. If this bench does not compile with the library of the commit, the
// commit's own bench measures it.
func (d *duel) build(ctx context.Context, dir, tree string) error {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if d.exe[thisTree], err = buildWith(ctx, filepath.Join(dir, "this"), root); err != nil {
		return err
	}
	if d.exe[d.commit], err = buildWith(ctx, filepath.Join(dir, "that"), tree); err == nil || ctx.Err() != nil {
		return err
	}
	here, err2 := output(ctx, ".", "git", "rev-parse", "--show-prefix")
	if err2 != nil {
		return err2
	}
	own := filepath.Join(dir, "own")
	_, err2 = output(ctx, filepath.Join(tree, here), "go", "build", "-buildvcs=false", "-o", own, ".")
	if err2 != nil {
		return fmt.Errorf("this bench does not compile with the library of %s, and neither does its own: %w",
			d.commit, errors.Join(err, err2))
	}
	if usage, _ := exec.CommandContext(ctx, own, "-help").CombinedOutput(); !bytes.Contains(usage, []byte("\n  -json\n")) {
		return fmt.Errorf("this bench does not compile with the library of %s, and its own has no -json: %w", d.commit, err)
	}
	d.exe[d.commit] = own
	d.note = fmt.Sprintf("\n%s is measured by its own bench, because this one does not compile with its library", d.commit)
	return nil
}

// buildWith compiles this bench with the library at root, as name.
func buildWith(ctx context.Context, name, root string) (string, error) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	mod = fmt.Appendf(mod, "\nreplace %s => %q\n", libraryModule, root)
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		return "", err
	}
	librarySums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(name+".mod", mod, 0o600),
		os.WriteFile(name+".sum", append(sums, librarySums...), 0o600))
	if err != nil {
		return "", err
	}
	// With -trimpath a package that both sides have alike is compiled once, wherever it stands.
	_, err = output(ctx, ".", "env", "GOWORK=off",
		"go", "build", "-mod=mod", "-modfile="+name+".mod", "-trimpath", "-buildvcs=false", "-o", name, ".")
	return name, err
}

// measure has one side measure one scenario.
func (d *duel) measure(ctx context.Context, res *results, s scenario, side string) error {
	args := []string{"-json", "-scenarios", exactly(s.name)}
	if d.quick {
		args = append(args, "-quick")
	}
	if s.kind == instructionsTable {
		args = append(args, "-instructions")
	}
	text, err := output(ctx, ".", d.exe[side], args...)
	if err != nil {
		return err
	}
	return res.add(side, strings.NewReader(text))
}

// printJSON measures this library alone, and prints the rows.
func printJSON(ctx context.Context, chosen []scenario, quick bool) error {
	for i := range chosen {
		chosen[i].systems, chosen[i].rounds = []string{nameLibrary}, 1
	}
	res, err := newBench(os.Stderr, quick).run(ctx, chosen)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res.rows)
}

// add adds the output of -json as samples of a side.
func (r *results) add(side string, in io.Reader) error {
	var rows []row
	if err := json.NewDecoder(in).Decode(&rows); err != nil {
		return fmt.Errorf("output of -json: %w", err)
	}
	for _, found := range rows {
		to := r.row(found.Name, found.Kind)
		to.Samples[side] = append(to.Samples[side], found.Samples[nameLibrary]...)
	}
	return nil
}

// table has a line for each row and metric.
func (d *duel) table(title string, res *results) table {
	t := table{title: title}
	t.head = []string{"scenario", "figure", d.commit, thisTree, "ratio", "of " + d.commit, "of " + thisTree}
	for _, r := range res.rows {
		var done []metric
		for _, c := range slices.Concat(kindColumns[:]...) {
			then, now := r.values(d.commit, c.metric), r.values(thisTree, c.metric)
			if len(then) == 0 || len(now) == 0 || slices.Contains(done, c.metric) {
				continue
			}
			done = append(done, c.metric)
			ratio := "" // to nothing there is none
			if median(then) != 0 {
				ratio = fmt.Sprintf("%.3f", median(now)/median(then))
			}
			t.lines = append(t.lines, []string{r.Name, string(c.metric),
				figure(median(then)), figure(median(now)), ratio, spread(then), spread(now)})
		}
	}
	return t
}

// spread is the least and the most.
func spread(values []float64) string {
	return figure(slices.Min(values)) + ".." + figure(slices.Max(values))
}

// output runs a command in a folder and returns what it prints. An interrupted command may end what it has begun.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(string(out)), err
}
