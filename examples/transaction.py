"""Messages that are delivered only when the local transaction went well."""

import argparse
import sqlite3
import threading

import rocketmq_fast as rmq

# A file that all processes of the group see: whoever is asked must be able to answer.
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("database", help="file of the database; made if it is not there")
DATABASE = parser.parse_args().database


def execute(message, order):
    # The id goes into the same transaction as the change: check() finds either both or none.
    with sqlite3.connect(DATABASE) as database:
        database.execute("INSERT INTO orders VALUES (?, ?)", (message.transaction_id, order))
    if order == "order-2":
        raise RuntimeError("the process dies after its commit, before the broker hears of it")
    return rmq.LocalTransactionState.COMMIT_MESSAGE


def check(message):
    print("asked about", message.body.decode(), flush=True)
    with sqlite3.connect(DATABASE) as database:
        query = "SELECT 1 FROM orders WHERE transaction_id = ?"
        if database.execute(query, (message.msg_id,)).fetchone():
            return rmq.LocalTransactionState.COMMIT_MESSAGE
    return rmq.LocalTransactionState.ROLLBACK_MESSAGE


with sqlite3.connect(DATABASE) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (transaction_id TEXT, name TEXT)")

with rmq.TransactionProducer("example_orders", execute=execute, check=check) as producer:
    for order in ("order-1", "order-2"):
        message = rmq.Message("TopicTest", order.encode())
        result = producer.send_in_transaction(message, order)
        print(order, result.local_transaction_state.name, flush=True)
    try:
        threading.Event().wait()  # until Ctrl-C; the broker asks about order-2 within a minute
    except KeyboardInterrupt:
        print("stopped")
