package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

const (
	fromFlag     = "--redis"
	fromEnv      = "REDIS_URL"
	passwordFrom = "REDIS_PASSWORD"
)

// nodeTimeout is how long one node of a Cluster may take to answer.
const nodeTimeout = patience / 3

// bulkyTimeout is how long a large reply may take.
const bulkyTimeout = 5 * time.Minute

// dialing is how Redis is reached: the address, and what does not belong into it.
type dialing struct {
	redis                 string
	passwordFile          string
	caFile                string
	certFile, keyFile     string
	bulky                 bool // commands whose replies are large: they wait longer and are made once
	address               *address
	password              string
	roots                 *x509.CertPool
	certificates          []tls.Certificate
	passwordSet, prepared bool
}

func (d *dialing) flags(f *pflag.FlagSet) {
	f.StringVar(&d.redis, "redis", "", "address of Redis, see delayqueue --help (default $"+fromEnv+", else "+defaultURL+")")
	f.StringVar(&d.passwordFile, "password-file", "", "file whose first line is the password (default $"+passwordFrom+")")
	f.StringVar(&d.caFile, "cacert", "", "PEM file of the authorities that may have signed the server's certificate")
	f.StringVar(&d.certFile, "cert", "", "PEM file of this client's certificate")
	f.StringVar(&d.keyFile, "cert-key", "", "PEM file of its private key")
}

func envAddress() string { return os.Getenv(fromEnv) }

// prepare reads the address, and the files that flags name.
func (d *dialing) prepare() (err error) {
	if d.prepared {
		return nil
	}
	url, from := d.redis, fromFlag
	if url == "" {
		url, from = envAddress(), fromEnv
	}
	if url == "" {
		url, from = defaultURL, fromFlag
	}
	if d.address, err = parseAddress(url, from); err != nil {
		return err
	}
	if err := d.readPassword(); err != nil {
		return err
	}
	if err := d.readCertificates(); err != nil {
		return err
	}
	d.prepared = true
	return nil
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
	if d.caFile+d.certFile+d.keyFile == "" {
		return nil
	}
	if !d.address.tls() {
		return fail(exitUsage, "--cacert, --cert and --cert-key are for TLS: did you mean %s?",
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

// secure adds the files to what the address says.
func (d *dialing) secure(c *tls.Config) {
	if c != nil {
		c.RootCAs, c.Certificates = d.roots, d.certificates
	}
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
		d.secure(opt.TLSConfig)
		if opt.MasterName == "" {
			return nil, fail(exitNoRedis, "%s: which primary? Add ?master=<name>%s", r.from, d.masters(opt, ""))
		}
		opt.ContextTimeoutEnabled = true
		if d.passwordSet {
			opt.Password = d.password
		}
		if d.bulky {
			opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
		}
		return redis.NewFailoverClient(opt), nil
	case kind == "cluster" || cluster:
		opt, err := redis.ParseClusterURL(r.plain())
		if err != nil {
			return nil, bad(err)
		}
		d.secure(opt.TLSConfig)
		if opt.ReadTimeout == 0 {
			opt.ReadTimeout = nodeTimeout // so that there is time to ask another node
		}
		opt.ContextTimeoutEnabled = true
		if d.passwordSet {
			opt.Password = d.password
		}
		if d.bulky {
			opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
		}
		return redis.NewClusterClient(opt), nil
	}
	opt, err := redis.ParseURL(r.plain())
	if err != nil {
		return nil, bad(err)
	}
	d.secure(opt.TLSConfig)
	opt.ContextTimeoutEnabled = true
	if d.passwordSet {
		opt.Password = d.password
	}
	if d.bulky {
		opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
	}
	return redis.NewClient(opt), nil
}

// masters says which primaries the sentinels know, if they answer.
func (d *dialing) masters(opt *redis.FailoverOptions, wrong string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, addr := range opt.SentinelAddrs {
		cli := redis.NewSentinelClient(&redis.Options{
			Addr: addr, DialerRetries: 1, Username: opt.SentinelUsername, Password: opt.SentinelPassword, TLSConfig: opt.TLSConfig,
		})
		known, err := cli.Masters(ctx).Result()
		_ = cli.Close() // it was only asked
		if err != nil {
			continue
		}
		var names []string
		for _, one := range known {
			switch fields := one.(type) {
			case map[any]any: // RESP3
				names = append(names, fmt.Sprint(fields["name"]))
			case []any:
				if i := slices.Index(fields, any("name")); i >= 0 && i+1 < len(fields) {
					names = append(names, fmt.Sprint(fields[i+1]))
				}
			}
		}
		if len(names) > 0 {
			return didYouMean(cmp.Or(nearest(wrong, names), names[0]), "")
		}
	}
	return ""
}

// reach makes a client and asks who answers: a node of a Cluster under the address of one server gets a client
// that knows Clusters.
func (d *dialing) reach(ctx context.Context) (redis.UniversalClient, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	cli, err := d.client(false)
	if err != nil {
		return nil, err
	}
	mode, err := modeOf(ctx, cli)
	if _, plain := cli.(*redis.Client); plain && err == nil && mode == "cluster" && !strings.Contains(d.address.Scheme, "+") {
		_ = cli.Close() // it knows one node
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
	_ = cli.Close() // it was of no use
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fail(exitNoRedis, "%s", d.unreachable(err))
}

// anyMaster is nil if one node of a Cluster answers: the others may be down.
func anyMaster(ctx context.Context, cli *redis.ClusterClient) error {
	answered := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the others need not answer
	failed := make(chan error, 1)
	go func() {
		failed <- cli.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := node.Ping(ctx).Err()
			if err == nil {
				select {
				case answered <- struct{}{}:
				default:
				}
			}
			return err
		})
	}()
	select {
	case <-answered:
		return nil
	case err := <-failed:
		select {
		case <-answered:
			return nil
		default:
			return err
		}
	}
}

// modeOf is what a server says that it is: standalone, cluster or sentinel. HELLO needs no permission.
func modeOf(ctx context.Context, cli redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cluster, ok := cli.(*redis.ClusterClient); ok {
		return "cluster", anyMaster(ctx, cluster)
	}
	reply, err := cli.Do(ctx, "HELLO").Result()
	if err != nil && redis.HasErrorPrefix(err, "ERR unknown command") {
		return "", cli.Ping(ctx).Err()
	}
	switch fields := reply.(type) {
	case map[any]any: // RESP3
		return fmt.Sprint(fields["mode"]), err
	case []any:
		if i := slices.Index(fields, any("mode")); i >= 0 && i+1 < len(fields) {
			return fmt.Sprint(fields[i+1]), err
		}
	}
	return "", err
}
