package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

const (
	fromFlag     = "--redis"
	fromEnv      = "REDIS_URL"
	passwordFrom = "REDIS_PASSWORD"
)

// patience is how long a server may take to answer the first call, and how long is spent on a hint. Tests change it.
var patience = 5 * time.Second

// dialing is how Redis is reached: the address, and secrets and files that do not belong into an address.
type dialing struct {
	redis             string
	passwordFile      string
	caFile            string
	certFile, keyFile string
	serverName        string
	address           *address
	password          string
	roots             *x509.CertPool
	certificates      []tls.Certificate
	passwordSet       bool
}

func (d *dialing) flags(f *pflag.FlagSet) {
	f.StringVar(&d.redis, "redis", "", "address of Redis; see delayqueue --help (default $"+fromEnv+", else "+defaultURL+
		")")
	f.StringVar(&d.passwordFile, "password-file", "", "file whose first line is the password (default $"+passwordFrom+")")
	f.StringVar(&d.caFile, "cacert", "", "PEM file of the authorities that sign the server's certificate")
	f.StringVar(&d.certFile, "cert", "", "PEM file of this client's certificate")
	f.StringVar(&d.keyFile, "cert-key", "", "PEM file of the client's private key")
	f.StringVar(&d.serverName, "tls-server-name", "",
		"name that the server's certificate has (default: the host of the address)")
}

// prepare reads the address, and the files that flags name.
func (d *dialing) prepare() (err error) {
	url, from := d.redis, fromFlag
	if env := os.Getenv(fromEnv); url == "" && env != "" {
		url, from = env, fromEnv
	}
	if d.address, err = parseAddress(cmp.Or(url, defaultURL), from); err != nil {
		return err
	}
	return cmp.Or(d.readPassword(), d.readCertificates())
}

func (d *dialing) readPassword() error {
	if d.passwordFile == "" {
		d.password, d.passwordSet = os.LookupEnv(passwordFrom)
		return nil
	}
	text, err := os.ReadFile(d.passwordFile)
	if err != nil {
		return fail(exitUsage, "--password-file: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	d.password, d.passwordSet = strings.TrimSuffix(first, "\r"), true
	if d.password == "" {
		return fail(exitUsage, "--password-file %s: its first line is empty", d.passwordFile)
	}
	return nil
}

func (d *dialing) readCertificates() error {
	if d.caFile+d.certFile+d.keyFile+d.serverName == "" {
		return nil
	}
	if !d.address.tls() {
		return fail(exitUsage, "--cacert, --cert, --cert-key and --tls-server-name are for TLS: did you mean %s?",
			"rediss"+strings.TrimPrefix(d.address.shown(), "redis"))
	}
	if (d.certFile == "") != (d.keyFile == "") {
		return fail(exitUsage, "--cert and --cert-key go together")
	}
	if d.caFile != "" {
		pem, err := os.ReadFile(d.caFile)
		if err != nil {
			return fail(exitUsage, "--cacert: %v", err)
		}
		d.roots = x509.NewCertPool()
		if !d.roots.AppendCertsFromPEM(pem) {
			return fail(exitUsage, "--cacert %s: there is no certificate in it", d.caFile)
		}
	}
	if d.certFile != "" {
		pair, err := tls.LoadX509KeyPair(d.certFile, d.keyFile)
		if err != nil {
			return fail(exitUsage, "--cert and --cert-key: %v", err)
		}
		d.certificates = []tls.Certificate{pair}
	}
	return nil
}

// client makes a client for the kind of server that the address names, or for a Cluster.
func (d *dialing) client(cluster bool) (redis.UniversalClient, error) {
	r := d.address
	bad := func(err error) error { return fail(exitNoRedis, "%s: %s: %v", r.from, r.shown(), err) }
	switch _, kind, _ := strings.Cut(r.Scheme, "+"); {
	case kind == "sentinel":
		opt, err := redis.ParseFailoverURL(r.plain())
		if err != nil {
			return nil, bad(err)
		}
		d.complete(&opt.ContextTimeoutEnabled, &opt.Password, opt.TLSConfig)
		if opt.MasterName == "" {
			return nil, fail(exitNoRedis, "%s: which primary? Add ?master=<name>", r.from)
		}
		return redis.NewFailoverClient(opt), nil
	case kind == "cluster" || cluster:
		opt, err := redis.ParseClusterURL(r.plain())
		if err != nil {
			return nil, bad(err)
		}
		d.complete(&opt.ContextTimeoutEnabled, &opt.Password, opt.TLSConfig)
		opt.DialTimeout = cmp.Or(opt.DialTimeout, patience/3) // leaves time to ask another node
		opt.ReadTimeout = cmp.Or(opt.ReadTimeout, patience/3)
		opt.DisableRoutingPolicies = true // for which it asks a node for COMMAND, perhaps one that does not answer
		return redis.NewClusterClient(opt), nil
	}
	opt, err := redis.ParseURL(r.plain())
	if err != nil {
		return nil, bad(err)
	}
	d.complete(&opt.ContextTimeoutEnabled, &opt.Password, opt.TLSConfig)
	return redis.NewClient(opt), nil
}

// complete adds to the options of an address what it does not say.
func (d *dialing) complete(contextTimeouts *bool, password *string, secure *tls.Config) {
	*contextTimeouts = true
	if d.passwordSet {
		*password = d.password
	}
	if secure != nil {
		secure.RootCAs, secure.Certificates = d.roots, d.certificates
		secure.ServerName = cmp.Or(d.serverName, secure.ServerName)
	}
}

// field is a field of a reply that is a map, or in RESP2 a list of names and values; "" if there is none.
func field(reply any, name string) string {
	switch fields := reply.(type) {
	case map[any]any:
		if value, ok := fields[name]; ok {
			return fmt.Sprint(value)
		}
	case []any:
		if i := slices.Index(fields, any(name)); i >= 0 && i+1 < len(fields) {
			return fmt.Sprint(fields[i+1])
		}
	}
	return ""
}

// reach makes a client and asks what answers. If the address of one server leads to a node of a Cluster, the client
// is one for Clusters.
func (d *dialing) reach(ctx context.Context) (redis.UniversalClient, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	cli, err := d.client(false)
	if err != nil {
		return nil, err
	}
	mode, err := modeOf(ctx, cli)
	if _, plain := cli.(*redis.Client); plain && err == nil && mode == "cluster" &&
		!strings.Contains(d.address.Scheme, "+") {
		_ = cli.Close() // this client knows one node
		if cli, err = d.client(true); err != nil {
			return nil, err
		}
		_, err = modeOf(ctx, cli)
	}
	if err == nil && mode == "sentinel" {
		err = errSentinel
	}
	if err == nil {
		return cli, nil
	}
	_ = cli.Close() // no server answers
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fail(exitNoRedis, "%s", d.unreachable(err))
}

// anyMaster returns nil as soon as one node of a Cluster answers: the others may be down.
func anyMaster(ctx context.Context, cli *redis.ClusterClient) error {
	nodes, err := link.Primaries(ctx, cli)
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		go func() { answers <- node.Ping(ctx).Err() }()
	}
	for range nodes {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

// modeOf asks a server whether it is standalone, cluster or sentinel. HELLO needs no permission.
func modeOf(ctx context.Context, cli redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cluster, ok := cli.(*redis.ClusterClient); ok {
		return "cluster", anyMaster(ctx, cluster)
	}
	reply, err := cli.Do(ctx, "HELLO").Result()
	return field(reply, "mode"), err
}

// errSentinel says that the address of one server leads to a sentinel.
var errSentinel = errors.New("a sentinel answers")

// unreachable says why Redis cannot be used, and what to try.
func (d *dialing) unreachable(err error) string {
	r, text := d.address, err.Error()
	said := func(what string) string { return r.from + ": " + r.shown() + " " + what }
	switch {
	case errors.Is(err, errSentinel):
		return said("is a sentinel: use " + r.as("sentinel") + "?master=<name>")
	case strings.Contains(text, "cluster support disabled"):
		return said("is one server and no Cluster: did you mean " + r.as("") + "?")
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"),
		strings.Contains(text, "AUTH <password> called without"):
		hint := "wants another user or password, in the address, by --password-file or " + passwordFrom
		if strings.HasSuffix(r.Scheme, "+sentinel") {
			hint += "; the primary's in the address are &username=…&password=…, and those before the @ are for the sentinels"
		}
		return said(hint + " (" + text + ")")
	case strings.Contains(text, "NOPERM"):
		return said("refuses this user: it needs what docs/acl.md lists, in a Cluster +cluster|slots and +command too (" +
			text + ")")
	case strings.HasSuffix(r.Scheme, "+sentinel"):
		return said("names no sentinel that answers and knows this primary (" + text + ")")
	}
	return r.from + ": nothing answers at " + r.shown() + " (" + text + ")"
}
