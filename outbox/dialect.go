package outbox

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Dialect is the SQL of one kind of database, and how the tables' names begin.
type Dialect struct {
	name     string
	prefix   string
	schema   string
	now      string // an expression: microseconds since 1970 by the database's clock
	numbered bool   // placeholders are $1, $2; else each is a question mark
	ids      string // a condition on a list of ids, which is one parameter; "": the list stands in the SQL
	notify   bool   // WithNotify
	by       string // has UPDATE and DELETE look up rows by their ids and read no other
	delete   string // begins a DELETE by ids
	insert   string // begins an INSERT that changes nothing if the row is there
	behind   string // ends it
	waiting  string // has the index of rows that wait find the queues; "": the index of all rows does
}

var (
	//go:embed schema/postgres.sql
	postgresSchema string
	//go:embed schema/notify.sql
	notifySchema string
	//go:embed schema/mysql.sql
	mysqlSchema string
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

// The dialects. Each works with any driver of database/sql for its database.
var (
	// Postgres is PostgreSQL 12 or later.
	Postgres = Dialect{
		name: "PostgreSQL", prefix: defaultPrefix, schema: postgresSchema, numbered: true,
		now:    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		delete: "DELETE FROM {prefix}outbox", ids: "id = ANY(CAST(? AS bigint[]))",
		insert: "INSERT INTO", behind: "ON CONFLICT DO NOTHING", waiting: " AND number IS NULL",
	}
	// MySQL is MySQL 8.0 or later, and MariaDB 10.3 or later.
	MySQL = Dialect{
		name: "MySQL", prefix: defaultPrefix, schema: mysqlSchema,
		now:    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		insert: "INSERT IGNORE INTO", by: " FORCE INDEX (PRIMARY)",
		delete: "DELETE {prefix}outbox FROM {prefix}outbox FORCE INDEX (PRIMARY)",
	}
	// SQLite is SQLite 3.42 or later.
	SQLite = Dialect{
		name: "SQLite", prefix: defaultPrefix, schema: sqliteSchema,
		now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", delete: "DELETE FROM {prefix}outbox",
		insert: "INSERT INTO", behind: "ON CONFLICT DO NOTHING", waiting: " AND number IS NULL",
	}
)

const defaultPrefix = "delayqueue_"

// WithPrefix makes the names of the tables begin with prefix, so that several services can have tables of their own
// in one database. Default: "delayqueue_". It panics if prefix has other bytes than lower-case letters, digits and
// underscores, begins with a digit, or has more than 40 bytes.
func (d Dialect) WithPrefix(prefix string) Dialect {
	if !validPrefix.MatchString(prefix) {
		panic(fmt.Sprintf("outbox: WithPrefix(%q): lower-case letters, digits and underscores, at most 40, no digit first",
			prefix))
	}
	d.prefix = prefix
	return d
}

// WithNotify adds a trigger to the Schema of Postgres that notifies the channel "delayqueue_outbox" (the prefix and
// "outbox") of each transaction that writes rows. See Listen. PostgreSQL commits such transactions one at a time.
func (d Dialect) WithNotify() Dialect {
	d.notify = d.numbered
	return d
}

// Names of other bytes would have to be quoted, and PostgreSQL makes capital letters small unless they are.
var validPrefix = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,39})?$`)

// Schema is the SQL that makes the tables, for any tool that runs migrations. It may run again. Statements end with a
// semicolon and a line break, and no other line ends so, for drivers that execute one statement at a time.
func Schema(d Dialect) string {
	text := d.schema
	if d.notify {
		text += notifySchema
	}
	return strings.ReplaceAll(text, "{prefix}", d.prefix)
}

// fill writes the prefix, the clock and the placeholders of this dialect into a statement.
func (d Dialect) fill(query string) string {
	query = strings.NewReplacer("{prefix}", d.prefix, "{now}", d.now, "{by}", d.by, "{waiting}", d.waiting).Replace(query)
	if !d.numbered {
		return query
	}
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, part := range parts {
		if b.WriteString(part); i < len(parts)-1 {
			b.WriteString("$" + strconv.Itoa(i+1))
		}
	}
	return b.String()
}

// withIDs is a statement with a condition on a list of ids in place of {ids}, whose arguments come last. Rows are
// always changed by their ids, because MySQL locks all rows that it reads, and waits for those of open transactions.
func (d Dialect) withIDs(query string, ids []int64, args ...any) (string, []any) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	list := strings.Join(texts, ",")
	if d.ids == "" {
		return strings.ReplaceAll(query, "{ids}", "id IN ("+list+")"), args
	}
	return strings.ReplaceAll(query, "{ids}", d.ids), append(args, "{"+list+"}")
}

// Prefix is how the names of the tables begin.
func (d Dialect) Prefix() string { return d.prefix }

// Name is the name of the kind of database, such as "PostgreSQL".
func (d Dialect) Name() string { return d.name }
