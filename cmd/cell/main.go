// Command cell runs one cell: CELL=ingest, graph or causal, or an owner's CELL_CONFIG. The README lists its environment.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"recount/internal/app"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "cell:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	config, err := app.LoadCell()
	if err != nil {
		return err
	}
	return app.RunCell(ctx, config, os.Stderr)
}
