package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"time"
)

// workload is one thing that is measured.
type workload struct {
	name, about string
	run         func(ctx context.Context, e *env) error
}

// workloads in the order in which they are run.
var workloads = []workload{
	{"coldstart", "open on a new machine and read one row by its key, by size", coldStart},
	{"fork", "make a database that begins as another one is, by size", fork},
	{"forks", "twenty forks of one database on one machine read the same part", forks},
	{"step", "commit 1 kB and wait until the remote has it", step},
	{"resume", "open on a new machine, commit, and wait until the remote has it", resume},
	{"local", "commit as fast as it goes while shipping goes on", local},
	{"many", "16 databases in one process, each stepping flat out", many},
	{"settled", "what a thousand steps leave in the bucket", settled},
	{"idle", "many databases open in one process, none in use", idle},
	{"hydrate", "bring every page of a database to a new machine", hydrate},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 && os.Args[1] == apartArg {
		signal.Ignore(os.Interrupt) // it ends with who started it
		return beApart(os.Args[2:])
	}
	var s settings
	only := flag.String("run", "", "`regexp` of the workloads to run")
	list := flag.Bool("list", false, "list the workloads and end")
	over := flag.String("line", "", "`regexp` of the lines to run over, such as '^0 ms$'")
	flag.IntVar(&s.rounds, "n", 5, "rounds of which medians are taken")
	flag.BoolVar(&s.small, "small", false, "small sizes: it all works, the figures say nothing")
	flag.BoolVar(&s.large, "large", false, "10 GB as well (30 GB of disk)")
	flag.BoolVar(&s.peers, "peers", true, "measure peers beside it")
	flag.StringVar(&s.out, "out", "", "`directory` for results.txt, results.json and a plot for each workload")
	profile := flag.String("cpuprofile", "", "write a CPU profile to `file`; samples of what is measured carry the label system")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if s.line, err = regexp.Compile(*over); err != nil {
		return err
	}
	if flag.NArg() > 0 || s.rounds < 1 {
		flag.Usage()
		return fmt.Errorf("bad arguments")
	}
	if *list {
		for _, w := range workloads {
			fmt.Printf("%-12s %s\n", w.name, w.about)
		}
		return nil
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // peers tell much
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e, err := newEnv(ctx, s)
	if err != nil {
		return err
	}
	defer e.close()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, w := range workloads {
		if !pattern.MatchString(w.name) {
			continue
		}
		e.name, e.cond = w.name, conditionsNow()
		e.logf("%s", w.about)
		begin := time.Now()
		if err := w.run(ctx, e); err != nil {
			e.report.Failed = append(e.report.Failed, fmt.Sprintf("%s: %v", w.name, err))
			e.logf("FAILED: %v", err)
		}
		e.report.Took = append(e.report.Took, took{w.name, time.Since(begin).Seconds()})
		if ctx.Err() != nil {
			break
		}
	}
	e.report.text(os.Stdout)
	if s.out != "" {
		if err := e.report.write(s.out); err != nil {
			return err
		}
	}
	if n := len(e.report.Failed); n > 0 {
		return fmt.Errorf("%d workloads failed", n)
	}
	return nil
}
