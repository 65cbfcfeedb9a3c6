-- What a record is, and what the scripts do with it. Stands before each of them.
--
-- A script runs alone: nothing else of this server runs between its first line and its last, so what it reads is
-- what it writes upon. It is not rolled back, so every script decides first and writes last, and its first write is
-- the one that can be refused (for want of memory, by a disk that is full): then nothing is written.
--
-- The rules are those of crates/semel/src/record.rs, function by function and by the same names.
--
-- Numbers of this language are doubles, exact up to 2^53. Instants are milliseconds and end there, as "never"; fences
-- count claims of one key, one by one. A fence from outside is compared as text, so that none is rounded into another.

local NEVER = 9007199254740991
-- How long Redis keeps what is forgotten, so that a sweep finds it together with its names: ten minutes.
local MARGIN = 600000
-- The last 128 attempts that are over, sixteen bytes each.
local SPENT_BYTES = 128 * 16
local LAYOUT = 1

-- The places of a record, which is kept as one MessagePack array.
local VERSION, STATE, FENCE, ATTEMPT, SPENT, ATTEMPTS, BOUND, BOUND_BY, DOUBT, FIRST_AT, SINCE, LABEL, INPUT = 1, 2,
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
-- AT is the end of the lease, the earliest next claim, or the end of the replay; TEXT the outcome, or the cause.
local AT, FORGET_AT, WAS, SETTLES, FORMAT, TEXT = 14, 15, 16, 17, 18, 19

local RUNNING, RELEASED, COMPLETED, UNKNOWN, DEAD = 1, 2, 3, 4, 5
local WAS_NEW, WAS_RELEASED, WAS_LAPSED, WAS_UNKNOWN, WAS_DEAD, WAS_RUNNING = 0, 1, 2, 3, 4, 5

local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function after(now, duration)
    return math.min(now + duration, NEVER)
end

local function text(number)
    return string.format('%.0f', number)
end

-- The record at a name; nil where there is none. A newer program's layout is none that this one may guess at.
local function load(name)
    local packed = redis.call('GET', name)
    if not packed then
        return nil
    end
    local is_read, record = pcall(cmsgpack.unpack, packed)
    if not is_read or type(record) ~= 'table' or record[VERSION] ~= LAYOUT then
        error({ err = 'SEMELCORRUPT a record cannot be read' })
    end
    return record
end

local function is_expired(record, now)
    return now >= record[FORGET_AT]
end

-- A lease ends at its instant, not after it.
local function is_lapsed(record, now)
    return now >= record[AT]
end

-- Since when, or from when on, a record waits for somebody.
local function open_at(record)
    local state = record[STATE]
    if state == RUNNING then
        return record[AT]
    elseif state == UNKNOWN or state == DEAD then
        return record[SINCE]
    end
end

-- When there is something to free next; nil if never.
local function due_at(record)
    local at = record[FORGET_AT]
    if record[FORMAT] then
        at = record[AT]
    end
    if at < NEVER then
        return at
    end
end

local function is_spent(record, attempt)
    local at = string.find(record[SPENT], attempt, 1, true)
    -- Only where an id begins: the bytes of two neighbours are none.
    while at and (at - 1) % 16 ~= 0 do
        at = string.find(record[SPENT], attempt, at + 1, true)
    end
    return at ~= nil
end

-- Remembers that the present attempt is over.
local function spend(record)
    if not is_spent(record, record[ATTEMPT]) then
        record[SPENT] = string.sub(record[SPENT] .. record[ATTEMPT], -SPENT_BYTES)
    end
end

-- Puts a record into another state.
local function enter(record, state, now)
    record[STATE], record[SINCE] = state, now
    record[AT], record[FORGET_AT], record[WAS], record[SETTLES] = 0, NEVER, WAS_NEW, 0
    record[FORMAT], record[TEXT] = false, ''
end

-- Writes a record in the place of `old`, which was read by this script, and keeps its names with it. The record goes
-- first: of these writes it alone can be refused, and then nothing is written.
--
-- names: record, open, due, index, history
local function save(names, id, old, record)
    local packed = cmsgpack.pack(record)
    local forget_at = record[FORGET_AT]
    if forget_at < NEVER then
        redis.call('SET', names[1], packed, 'PXAT', text(forget_at + MARGIN))
    else
        redis.call('SET', names[1], packed)
    end
    local open, due = open_at(record), due_at(record)
    if open then
        redis.call('ZADD', names[2], text(open), id)
    elseif old and open_at(old) then
        redis.call('ZREM', names[2], id)
    end
    if due then
        redis.call('ZADD', names[3], text(due), id)
    elseif old and due_at(old) then
        redis.call('ZREM', names[3], id)
    end
    if not old then
        redis.call('ZADD', names[4], 0, id)
    elseif old[STATE] ~= RUNNING or record[FENCE] > 1 then
        -- Only then can there be a history. It goes with the record.
        if forget_at < NEVER then
            redis.call('PEXPIREAT', names[5], text(forget_at + MARGIN))
        else
            redis.call('PERSIST', names[5])
        end
    end
end

-- What a reader is given of a record, in one order.
local function shown(record)
    local shown = {
        record[STATE], text(record[FENCE]), record[ATTEMPT], record[SPENT], record[ATTEMPTS], record[BOUND],
        text(record[BOUND_BY]), record[DOUBT], text(record[FIRST_AT]), text(record[SINCE]), record[LABEL], '',
        text(record[AT]), text(record[FORGET_AT]), record[WAS], record[SETTLES], -1, record[TEXT],
    }
    if record[INPUT] then
        shown[12] = '+' .. record[INPUT]
    end
    if record[FORMAT] then
        shown[17] = record[FORMAT]
    end
    return shown
end

