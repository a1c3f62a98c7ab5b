// Package bigquery keeps the storage contract on BigQuery tables: counts, deletes, reads and appends over the v2 API.
//
// Two things about the platform shape everything here. Statements cost by the table and not by the subject, so
// concurrent calls share one. And the platform refuses to delete rows that were streamed in a short while ago, so a
// refusal is told from a failure with care: see errors.go.
//
// What stays outside the guarantee: BigQuery keeps a job's parameters in the project's job history, and a query's result
// in an anonymous table for a day. Counts therefore answer positions and numbers, never an identity; a Read's result
// holds the rows that were asked for.
package bigquery

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	bq "cloud.google.com/go/bigquery"
	"github.com/cenkalti/backoff/v5"
	rest "google.golang.org/api/bigquery/v2"
	"google.golang.org/api/option"
)

const (
	backend           = "bigquery"
	defaultJobTimeout = 15 * time.Second
	minKeyBytes       = 16
	firstPause        = 200 * time.Millisecond
	failSafe          = 7 * 24 * time.Hour
	maxTimeTravel     = 7 * 24 * time.Hour
	timeTravelTTL     = 10 * time.Minute
)

// Config says which dataset to work on.
type Config struct {
	Project, Dataset string
	// Location is the dataset's location. Empty asks the dataset; anything else MUST agree with it.
	Location string
	// EmulatorHost is host:port of an emulator, "" for the live service with the account's own credentials.
	EmulatorHost string
	// Key keys the hashes in job ids, insert ids and cursors, which outlive the rows that they were made from. It needs
	// 16 bytes or more, and MUST be the same in every instance, or a retry elsewhere can't find the running job.
	Key []byte
	// JobTimeout bounds every job, from its submission to its result. 0 is 15 s.
	JobTimeout time.Duration
}

func (c Config) check() error {
	var faults []error
	for name, value := range map[string]string{"project": c.Project, "dataset": c.Dataset} {
		if value == "" {
			faults = append(faults, fmt.Errorf("bigquery: the %s is not set", name))
		} else if strings.ContainsAny(value, "`\\") {
			faults = append(faults, fmt.Errorf("bigquery: the %s %q can't be quoted", name, value))
		}
	}
	if len(c.Key) < minKeyBytes {
		faults = append(faults, fmt.Errorf("bigquery: the key needs at least %d bytes, this one has %d", minKeyBytes, len(c.Key)))
	}
	if _, _, err := net.SplitHostPort(c.EmulatorHost); c.EmulatorHost != "" && err != nil {
		faults = append(faults, fmt.Errorf("bigquery: the emulator host %q is not host:port", c.EmulatorHost))
	}
	if c.JobTimeout < 0 {
		faults = append(faults, fmt.Errorf("bigquery: the job timeout %s is negative", c.JobTimeout))
	}
	return errors.Join(faults...)
}

// Client is one dataset. It is safe for concurrent use.
type Client struct {
	cfg      Config
	location string
	bq       *bq.Client
	rest     *rest.Service
	now      func() time.Time
	life     context.Context //nolint:containedctx // of the statements that several callers share; ended by Close
	end      context.CancelFunc

	travelMu sync.Mutex
	travel   time.Duration // of the dataset, as last read
	travelAt time.Time
}

// Open connects to the dataset, and asks it for its location. The client lives until Close; ctx bounds the opening.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.JobTimeout == 0 {
		cfg.JobTimeout = defaultJobTimeout
	}
	var opts []option.ClientOption
	if cfg.EmulatorHost != "" {
		opts = append(opts, option.WithEndpoint("http://"+cfg.EmulatorHost+"/bigquery/v2/"), option.WithoutAuthentication())
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	client, err := bq.NewClient(life, cfg.Project, opts...)
	if err != nil {
		end()
		return nil, &failure{"the client could not be made", err}
	}
	opts = append(opts, option.WithScopes(bq.Scope))
	service, err := rest.NewService(life, opts...)
	if err != nil {
		end()
		return nil, &failure{"the client could not be made", err}
	}
	c := &Client{cfg: cfg, bq: client, rest: service, now: time.Now, life: life, end: end}
	if err := c.locate(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Client) locate(ctx context.Context) error {
	d, err := c.dataset(ctx)
	if err != nil {
		return fmt.Errorf("bigquery: dataset %s.%s can't be read; create it, or grant this account bigquery.datasets.get: %w", c.cfg.Project, c.cfg.Dataset, judge(err).read("reading the dataset", err))
	}
	if c.cfg.Location != "" && !strings.EqualFold(c.cfg.Location, d.Location) {
		return fmt.Errorf("bigquery: dataset %s is in %s, not in %s: set the location to that, or leave it out", c.cfg.Dataset, d.Location, c.cfg.Location)
	}
	c.location = d.Location
	return nil
}

// dataset reads the dataset's metadata, and remembers its time travel window.
func (c *Client) dataset(ctx context.Context) (*rest.Dataset, error) {
	d, err := ask(ctx, c, c.rest.Datasets.Get(c.cfg.Project, c.cfg.Dataset).Context)
	if err != nil {
		return nil, err
	}
	c.travelMu.Lock()
	defer c.travelMu.Unlock()
	c.travelAt, c.travel = c.now(), maxTimeTravel
	if d.MaxTimeTravelHours > 0 {
		c.travel = time.Duration(d.MaxTimeTravelHours) * time.Hour
	}
	return d, nil
}

// Close ends the statements that are still shared, and the connections.
func (c *Client) Close() error {
	c.end()
	if err := c.bq.Close(); err != nil {
		return &failure{"closing the client", err}
	}
	return nil
}

// recoverableUntil is the latest moment at which a row that was deleted then can still be brought back: time travel, and
// the fail-safe behind it. Result tables of a day are shorter. Where the dataset can't be asked it is the most that the
// platform ever keeps, since a bound must not be too low.
func (c *Client) recoverableUntil(ctx context.Context, deleted time.Time) time.Time {
	c.travelMu.Lock()
	travel, fresh := c.travel, c.now().Sub(c.travelAt) < timeTravelTTL
	c.travelMu.Unlock()
	if !fresh {
		travel = maxTimeTravel
		if _, err := c.dataset(ctx); err == nil {
			c.travelMu.Lock()
			travel = c.travel
			c.travelMu.Unlock()
		}
	}
	return deleted.Add(travel + failSafe)
}

// digest is a keyed hash of the parts, which are told apart whatever they hold.
func (c *Client) digest(parts ...string) []byte {
	mac := hmac.New(sha256.New, c.cfg.Key)
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		mac.Write(n[:])
		mac.Write([]byte(p))
	}
	return mac.Sum(nil)
}

func (c *Client) pauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = min(firstPause, c.cfg.JobTimeout/20), c.cfg.JobTimeout/4
	return b
}

// patience is how long one call may take before the job is looked up instead.
func (c *Client) patience() time.Duration { return c.cfg.JobTimeout / 4 }

// pause waits, and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}
