// Command bigquery-emulator runs the emulator as a process, with the tables of deploy/bigquery, for whoever wants to try
// the services against it: set BIGQUERY_EMULATOR_HOST to the address that it prints.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	ddl "recount/deploy/bigquery"
	"recount/internal/stores/bigquery/bqemu"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bigquery-emulator:", err)
		os.Exit(1) //nolint:gocritic // the signal handler may go with the process
	}
}

func run(ctx context.Context) error {
	var opts bqemu.Options
	flag.StringVar(&opts.Addr, "addr", "127.0.0.1:9050", "host:port to listen on")
	flag.StringVar(&opts.Project, "project", "test", "project of the dataset")
	flag.StringVar(&opts.Dataset, "dataset", "intent", "dataset to make")
	flag.StringVar(&opts.Location, "location", "EU", "location of the dataset")
	flag.Parse()
	var err error
	if opts.DDL, err = ddl.Statements(); err != nil {
		return err //nolint:wrapcheck // says what it was about
	}
	server, err := bqemu.Start(ctx, opts)
	if err != nil {
		return err //nolint:wrapcheck // says what it was about
	}
	fmt.Println(server.Host())
	<-ctx.Done()
	server.Close()
	return nil
}
