//go:build deps

package deps

import (
	_ "cloud.google.com/go/bigquery"
	_ "cloud.google.com/go/firestore"
	_ "github.com/alecthomas/kong"
	_ "github.com/caarlos0/env/v11"
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/go-chi/chi/v5"
	_ "github.com/goccy/go-yaml"
	_ "github.com/golang-jwt/jwt/v5"
	_ "github.com/google/uuid"
	_ "github.com/hashicorp/golang-lru/v2"
	_ "github.com/jedib0t/go-pretty/v6/table"
	_ "github.com/jedib0t/go-pretty/v6/progress"
	_ "github.com/pb33f/libopenapi"
	_ "github.com/pb33f/libopenapi-validator"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "go.uber.org/zap"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/term"
	_ "golang.org/x/text/cases"
	_ "golang.org/x/time/rate"
	_ "google.golang.org/api/idtoken"
	_ "google.golang.org/grpc"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
