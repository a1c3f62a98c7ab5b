// Package firestore keeps and erases subjects' rows in Google Cloud Firestore (Native mode): an owner's collections, the
// graph's journal, and the lease that lets one graph instance serve.
//
// # What it needs
//
// Single-field indexes on the tenant field and on every identity field, which Firestore makes by itself unless they were
// exempted; no composite index. Queries are equalities only, so the built-in indexes are merged. A missing index stops
// the start. Permissions: those of roles/datastore.user. Documents and the ledger of erasures need the single-field indexes
// that Firestore makes on place, wake, open_due and entry_id; those on body, line and hashes may be exempted.
//
// # What it can't see
//
// An empty collection can't be told from one that is missing or was renamed: check the first counts. Documents that an
// owner left below a parent which was deleted without them (a phantom) carry no key of the parent any more: only a table
// whose identity is the document id (NameColumn) finds them. A value that another writer stores with another type after
// the start is not seen by a query for a string. What is written while an erasure runs may survive it, and the recount
// sees it, with one exception: a document that is written below another in the moment in which that one is deleted is
// looked for once more by the erasure itself, and by nobody else if the process dies just then.
package firestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	fs "cloud.google.com/go/firestore"
	raw "cloud.google.com/go/firestore/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const emulatorVariable = "FIRESTORE_EMULATOR_HOST" // read by the SDK too, behind its caller's back

// Config says which database to use.
type Config struct {
	Project      string
	Database     string // "" is "(default)"
	EmulatorHost string // host:port of an emulator; "" is the live service
	// CursorSecret seals page cursors, which name documents. Instances that serve each other's pages MUST share it.
	// Empty is a random one: cursors then end with the process.
	CursorSecret []byte
}

// Client is one Firestore database. It is safe for concurrent use.
type Client struct {
	docs *fs.Client
	// tree is the same service one layer lower: the SDK refuses a query over all that is below a document, whatever its
	// collections are called.
	tree    *raw.Client
	conn    *grpc.ClientConn // of the emulator
	root    string           // projects/P/databases/D
	cursors cursorKey
}

// Open connects to the database. It makes no call: a Collection's checks are the first.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Project == "" {
		return nil, errors.New("a Firestore project is required")
	}
	if cfg.Database == "" {
		cfg.Database = fs.DefaultDatabaseID
	}
	if cfg.EmulatorHost == "" && os.Getenv(emulatorVariable) != "" {
		return nil, errors.New(emulatorVariable + " is set, and the configuration does not ask for an emulator")
	}
	if len(cfg.CursorSecret) == 0 {
		cfg.CursorSecret = make([]byte, 32)
		_, _ = rand.Read(cfg.CursorSecret) // never fails: crypto/rand ends the program instead
	}
	c := &Client{root: "projects/" + cfg.Project + "/databases/" + cfg.Database, cursors: newCursorKey(cfg.CursorSecret)}
	if err := c.connect(ctx, cfg); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Client) connect(ctx context.Context, cfg Config) error {
	opts := []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(markUnary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(markStream)),
	}
	if cfg.EmulatorHost != "" {
		conn, err := grpc.NewClient("passthrough:///"+cfg.EmulatorHost,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(emulatorOwner{}),
			grpc.WithChainUnaryInterceptor(markUnary), grpc.WithChainStreamInterceptor(markStream))
		if err != nil {
			return fmt.Errorf("connecting to the Firestore emulator: %w", err)
		}
		c.conn = conn
		opts = []option.ClientOption{option.WithGRPCConn(conn)}
	}
	var err error
	if c.docs, err = fs.NewClientWithDatabase(ctx, cfg.Project, cfg.Database, opts...); err != nil {
		return fmt.Errorf("connecting to Firestore: %w", err)
	}
	if c.tree, err = raw.NewClient(ctx, opts...); err != nil {
		return fmt.Errorf("connecting to Firestore: %w", err)
	}
	return nil
}

// Close ends the connections.
func (c *Client) Close() error {
	if c.conn != nil {
		return c.conn.Close()
	}
	var errs []error
	if c.docs != nil {
		errs = append(errs, c.docs.Close())
	}
	if c.tree != nil {
		errs = append(errs, c.tree.Close())
	}
	return errors.Join(errs...)
}

// relative is a document's path below the database, such as users/alice/orders/1.
func (c *Client) relative(path string) string { return strings.TrimPrefix(path, c.root+"/documents/") }

// emulatorOwner is the credential that an emulator takes for its owner's, past security rules.
type emulatorOwner struct{}

func (emulatorOwner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}

func (emulatorOwner) RequireTransportSecurity() bool { return false }
