-- Decides claims, each as record::claim does. Atomic as every script is; repeated with the same attempt it gives the
-- same lease, so a client that sends it twice has asked twice and run once.
--
-- ARGV of each: id, attempt, lease_for, label, input ('+' before it; '' for none), purpose,
--       'run': fingerprint, rerun, attempts_max; 'settle': seen, force, and one that is empty
local now = clock()
-- The call that is decided: its record's place among KEYS, what stands before its own ARGV, and what they say.
local place, from, id, attempt, lease_for, is_run
-- What was read, and what of it still counts.
local stored, record

local function lease(was)
    return { 'acquired', text(record[FENCE]), record[ATTEMPTS], was, record[DOUBT] }
end

local function age()
    return text(math.max(now - record[FIRST_AT], 0))
end

local function describe()
    record[LABEL], record[INPUT] = ARGV[from + 4], false
    if ARGV[from + 5] ~= '' then
        record[INPUT] = string.sub(ARGV[from + 5], 2)
    end
end

-- Gives the record to the request: fence up, attempt counted, lease begun.
local function acquire(was)
    if was ~= WAS_NEW then
        spend(record)
    end
    record[FENCE], record[ATTEMPT] = record[FENCE] + 1, attempt
    if is_run then
        record[ATTEMPTS] = record[ATTEMPTS] + 1
        if was == WAS_LAPSED or was == WAS_UNKNOWN then
            record[DOUBT] = 1
        end
        if record[BOUND] == '' then
            record[BOUND], record[BOUND_BY] = ARGV[from + 7], record[FENCE]
            describe()
        end
    end
    enter(record, RUNNING, now)
    record[AT], record[WAS] = after(now, lease_for), was
    record[SETTLES] = is_run and 0 or 1
    save(place, id, record)
    return lease(was)
end

-- A record that no claim has raised yet. What an expired one left behind goes.
local function first()
    record = { LAYOUT, RUNNING, 0, attempt, '', 0, '', 1, 0, now, now, '', false, now, NEVER, WAS_NEW, 0, false, '' }
    local granted = acquire(WAS_NEW)
    if stored then
        redis.call('UNLINK', KEYS[place + 1])
    end
    return granted
end

-- The holder asks again: its earlier answer was lost. Same lease, longer.
local function extend()
    record[AT] = after(now, lease_for)
    save(place, id, record)
    return lease(record[WAS])
end

-- What a claim that settles would take over, if it may.
local function takeable(force)
    local state = record[STATE]
    if state == RUNNING then
        if not is_lapsed(record, now) then
            return force and WAS_RUNNING or nil
        end
        -- A redrive that died has changed nothing: the record is as dead as before.
        return record[WAS] == WAS_DEAD and record[SETTLES] == 1 and WAS_DEAD or WAS_LAPSED
    elseif state == UNKNOWN then
        return WAS_UNKNOWN
    elseif state == DEAD then
        return WAS_DEAD
    end
end

local function unknown(cause)
    return { 'unknown', text(record[FENCE]), cause, age() }
end

local function dead(cause)
    return { 'dead', text(record[FENCE]), cause, age() }
end

local function exhausted()
    if record[STATE] == RELEASED then
        spend(record)
    end
    enter(record, DEAD, now)
    record[TEXT] = 'attempts-exhausted'
    save(place, id, record)
    return dead(record[TEXT])
end

-- A run's claim on a record that is bound to nothing else.
local function run(is_over, rerun, attempts_max)
    local state, was = record[STATE], nil
    local wait = text(math.max(record[AT] - now, 0))
    if state == RUNNING then
        if not is_lapsed(record, now) then
            return { 'in-flight', wait, age() }
        end
        -- What was dead, and whose redrive died, waits for a person.
        if not rerun or is_over or (record[SETTLES] == 1 and record[WAS] == WAS_DEAD) then
            return unknown('lapsed')
        end
        was = WAS_LAPSED
    elseif state == RELEASED then
        if is_over or now < record[AT] then
            return { 'in-flight', wait, age() }
        end
        was = WAS_RELEASED
    elseif state == COMPLETED then
        if record[FORMAT] and now < record[AT] then
            return { 'completed', record[FORMAT], record[TEXT], age(), record[ATTEMPTS] }
        end
        return { 'forgotten', age() }
    elseif state == UNKNOWN then
        if not rerun or is_over then
            return unknown(record[TEXT])
        end
        was = WAS_UNKNOWN
    else
        return dead(record[TEXT])
    end
    if record[ATTEMPTS] >= attempts_max then
        return exhausted()
    end
    return acquire(was)
end

return each(9, function(place_now, from_now)
    place, from = place_now, from_now
    id, attempt, lease_for = ARGV[from + 1], ARGV[from + 2], tonumber(ARGV[from + 3])
    is_run = ARGV[from + 6] == 'run'
    stored = taken(KEYS[place])
    record = stored
    if record and is_expired(record, now) then
        record = nil
    end
    if not record then
        return is_run and first() or { 'moved' }
    end
    if record[STATE] == RUNNING and record[ATTEMPT] == attempt then
        return extend()
    end
    -- It does not run, as was just seen.
    local is_over = record[ATTEMPT] == attempt or is_spent(record, attempt)
    if is_run then
        if record[BOUND] ~= '' and record[BOUND] ~= ARGV[from + 7] then
            return { 'mismatch', string.byte(record[BOUND], 1) }
        end
        return run(is_over, ARGV[from + 8] == '1', tonumber(ARGV[from + 9]))
    end
    local was = takeable(ARGV[from + 8] == '1')
    if was and text(record[FENCE]) == ARGV[from + 7] and not is_over then
        return acquire(was)
    end
    return { 'moved' }
end)
