// Debits an account once, however often it is asked: the key, the debit and the receipt commit together.
//
//	DATABASE_URL=postgres://... go run . KEY ACCOUNT CENTS
//
// It prints what came of it and the receipt: run the first time, replay from then on.
package main

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lib/pq"
)

// Within what a key is unique. A service with callers of its own puts the caller in.
const scope = "payments"

// The effect, in the caller's transaction. That there is too little money is an answer like any other.
func debit(tx *sql.Tx, account string, cents int64) (string, error) {
	var left int64
	err := tx.QueryRow(`UPDATE accounts SET balance_cents = balance_cents - $2
		WHERE id = $1 AND balance_cents >= $2 RETURNING balance_cents`, account, cents).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Sprintf("declined: %s has not %d", account, cents), nil
	}
	if err == nil {
		_, err = tx.Exec(`INSERT INTO payments (account, cents) VALUES ($1, $2)`, account, cents)
	}
	return fmt.Sprintf("debited %d from %s, %d left", cents, account, left), err
}

// begin: once
// payIn is one try, in an open transaction. It gives what came of it, and the receipt.
func payIn(tx *sql.Tx, attempt, key, account string, cents int64) (string, string, error) {
	var claim string
	var fence sql.NullInt64
	var outcome []byte
	err := tx.QueryRow(`SELECT claim, fence, outcome
		FROM semel.once($1, $2, $3, semel.fingerprint('debit', $4, $5))`,
		scope, key, attempt, account, strconv.FormatInt(cents, 10)).Scan(&claim, &fence, &outcome)
	if err != nil {
		return "", "", err
	}
	if claim == "completed" {
		return "replay", string(outcome), nil
	}
	if claim != "acquired" { // mismatch, forgotten, in-flight, unknown or dead: nothing is to be done
		return claim, "", nil
	}
	receipt, err := debit(tx, account, cents)
	if err != nil {
		return "", "", err
	}
	_, err = tx.Exec(`SELECT semel.complete($1, $2, $3, $4, $5)`, scope, key, fence.Int64, attempt, []byte(receipt))
	return "run", receipt, err
}

func pay(db *sql.DB, key, account string, cents int64) (what, receipt string, err error) {
	attempt := newAttempt()
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		what, receipt, err = payOnce(db, attempt, key, account, cents)
		// Was the connection lost in COMMIT, then it may have happened: the next try is told so.
		if err == nil || pause > time.Second || !again(err) {
			return what, receipt, err
		}
		time.Sleep(pause)
	}
}

func payOnce(db *sql.DB, attempt, key, account string, cents int64) (string, string, error) {
	tx, err := db.Begin()
	if err != nil {
		return "", "", err
	}
	defer tx.Rollback() // after Commit it does nothing
	what, receipt, err := payIn(tx, attempt, key, account, cents)
	if err != nil {
		return "", "", err
	}
	return what, receipt, tx.Commit()
}

// again says whether the transaction is to be tried again: what is not the server's word is a lost connection.
func again(err error) bool {
	var said *pq.Error
	if !errors.As(err, &said) {
		return true
	}
	switch said.Code {
	case "40001", "40P01", "57P01", "57P02", "57P03", "25P03":
		return true
	}
	return false
}

// end: once

// newAttempt is a random UUID.
func newAttempt() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: payment KEY ACCOUNT CENTS")
	}
	cents, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	what, receipt, err := pay(db, args[0], args[1], cents)
	if err == nil {
		fmt.Println(what, receipt)
	}
	return err
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
}
