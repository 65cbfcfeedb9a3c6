import static java.nio.charset.StandardCharsets.UTF_8;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Set;
import java.util.UUID;

/**
 * Debits an account once, however often it is asked: the key, the debit and the receipt commit together.
 *
 * <pre>DATABASE_URL=jdbc:postgresql://... java -cp postgresql.jar Payment.java KEY ACCOUNT CENTS</pre>
 *
 * It prints what came of it and the receipt: {@code run} the first time, {@code replay} from then on.
 */
public final class Payment {
    /** Within what a key is unique. A service with callers of its own puts the caller in. */
    private static final String SCOPE = "payments";

    /** Above READ COMMITTED, a deadlock, a server that shuts down, and one that ended a transaction that slept. */
    private static final Set<String> AGAIN = Set.of("40001", "40P01", "57P01", "57P02", "57P03", "25P03");

    record Paid(String what, String receipt) {}

    /** The effect, in the caller's transaction. That there is too little money is an answer like any other. */
    private static String debit(Connection connection, String account, long cents) throws SQLException {
        try (var debit = connection.prepareStatement("""
                UPDATE accounts SET balance_cents = balance_cents - ?
                WHERE id = ? AND balance_cents >= ? RETURNING balance_cents""");
                var note = connection.prepareStatement("INSERT INTO payments (account, cents) VALUES (?, ?)")) {
            debit.setLong(1, cents);
            debit.setString(2, account);
            debit.setLong(3, cents);
            try (var left = debit.executeQuery()) {
                if (!left.next()) {
                    return "declined: " + account + " has not " + cents;
                }
                note.setString(1, account);
                note.setLong(2, cents);
                note.executeUpdate();
                return "debited " + cents + " from " + account + ", " + left.getLong(1) + " left";
            }
        }
    }

    // begin: once
    /** One try, in an open transaction. Gives what came of it, and the receipt. */
    private static Paid payIn(Connection connection, UUID attempt, String key, String account, long cents)
            throws SQLException {
        long fence;
        try (var once = connection.prepareStatement("""
                SELECT claim, fence, outcome
                FROM semel.once(?, ?, ?, semel.fingerprint('debit', ?, ?))""")) {
            once.setString(1, SCOPE);
            once.setString(2, key);
            once.setObject(3, attempt);
            once.setString(4, account);
            once.setString(5, Long.toString(cents));
            try (var row = once.executeQuery()) {
                row.next();
                String claim = row.getString("claim");
                if (claim.equals("completed")) {
                    return new Paid("replay", new String(row.getBytes("outcome"), UTF_8));
                }
                if (!claim.equals("acquired")) {
                    // mismatch, forgotten, in-flight, unknown or dead: nothing is to be done
                    return new Paid(claim, "");
                }
                fence = row.getLong("fence");
            }
        }
        String receipt = debit(connection, account, cents);
        try (var complete = connection.prepareStatement("SELECT semel.complete(?, ?, ?, ?, ?)")) {
            complete.setString(1, SCOPE);
            complete.setString(2, key);
            complete.setLong(3, fence);
            complete.setObject(4, attempt);
            complete.setBytes(5, receipt.getBytes(UTF_8));
            complete.execute();
        }
        return new Paid("run", receipt);
    }

    static Paid pay(String url, String key, String account, long cents) throws SQLException, InterruptedException {
        UUID attempt = UUID.randomUUID();
        for (int pause = 100; ; pause *= 2) {
            // Closed without a commit, a connection rolls back.
            try (Connection connection = DriverManager.getConnection(url)) {
                connection.setAutoCommit(false);
                Paid paid = payIn(connection, attempt, key, account, cents);
                connection.commit();
                return paid;
            } catch (SQLException error) {
                // Was the connection lost in COMMIT, then it may have happened: the next try is told so.
                String state = String.valueOf(error.getSQLState());
                if (pause > 1000 || !(AGAIN.contains(state) || state.startsWith("08"))) {
                    throw error;
                }
                Thread.sleep(pause);
            }
        }
    }
    // end: once

    public static void main(String[] args) throws InterruptedException {
        try {
            Paid paid = pay(System.getenv("DATABASE_URL"), args[0], args[1], Long.parseLong(args[2]));
            System.out.println(paid.what() + " " + paid.receipt());
        } catch (SQLException error) {
            System.err.println("payment: " + error.getMessage());
            System.exit(1);
        }
    }
}
