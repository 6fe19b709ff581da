// Package outbox sends messages in one transaction with a database. What commits becomes one message of the queue,
// and what rolls back becomes none, whatever dies when: the sender, the relay, the database or Redis.
//
//	box, err := outbox.New(db, outbox.Postgres, orders) // orders is a *delayqueue.DelayQueue or a Publisher
//	go box.Run(ctx)                                     // on every replica
//
//	tx, err := db.BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "INSERT INTO orders …")
//	err = box.Send(ctx, tx, "orders", "42", delayqueue.WithKey("order-42"), delayqueue.WithDelay(15*time.Minute))
//	err = tx.Commit()
//	box.Committed()
//
// A Box writes rows into a table, and relays them to Redis after they were committed. It imports no driver.
// docs/outbox.md says what it costs, and what it cannot know.
package outbox
